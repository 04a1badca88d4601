package logging

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestLevelHoldsForAWhileAndThenTheConfiguredOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		level := NewLevel("info")
		log := New(&said, level, "text")
		shows := func(want string) {
			t.Helper()
			said.Reset()
			log.Debug("d")
			log.Info("i")
			log.Warn("w")
			lines := bytes.Count(said.Bytes(), []byte("\n"))
			now, _, _ := level.Show()
			expect.That(t, now == want && lines == map[string]int{"debug": 3, "info": 2, "warn": 1}[want], "level %s, %d lines, want those of %s", now, lines, want)
		}
		shows("info")
		level.Override("debug", time.Minute)
		time.Sleep(50 * time.Second)
		level.Override("debug", time.Minute)
		time.Sleep(50 * time.Second)
		level.Configure("warn")
		shows("debug")
		time.Sleep(11 * time.Second)
		shows("warn")
		level.Configure("info")
		shows("info")
	})
}
