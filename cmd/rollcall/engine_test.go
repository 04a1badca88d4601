package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestAStoreThatFailedIsNotKeptByWhatHangsBesideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, never := errors.New("disk broke"), make(chan bool)
		began := time.Now()
		err := together(t.Context(),
			func(context.Context) error { return broken },
			func(context.Context) { <-never })
		if !errors.Is(err, broken) || time.Since(began) != besideLimit {
			t.Errorf("ended after %v with %v, want the store's error after %v", time.Since(began), err, besideLimit)
		}
		close(never)
	})
}

func TestAFailedStartLeavesNothingOpen(t *testing.T) {
	tests := []struct {
		name  string
		wrong func(*Config)
		want  string
	}{
		{"behind the store", func(c *Config) { c.HTTPD.Reads = "nonsense" }, "reads.eureka"},
		{"beside the store", func(c *Config) { c.Replication.TLS.CA = "missing.pem" }, "replication.tls.ca"},
	}
	for _, tt := range tests {
		for _, mode := range []string{modeCP, modeAP} {
			t.Run(tt.name+" in mode "+mode, func(t *testing.T) {
				right := oneNode(t)
				right.Mode = mode
				wrong := *right
				tt.wrong(&wrong)
				need.ErrorSays(t, expect.Err(openNode(&wrong, quiet)), tt.want, "got")
				n, err := openNode(right, quiet)
				need.OKf(t, err, "the next start")
				n.closePorts()
				expect.OK(t, abandon(n.runStore))
			})
		}
	}
}
