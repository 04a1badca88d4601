package wire

import (
	"testing"
	"time"
)

func TestThePacerSpreadsItsTimesOverTheConnections(t *testing.T) {
	p := NewPacer(1000, 3, 10*time.Millisecond)
	p.Run(t.Context())
	var all [10]time.Time
	counts := make([]int, 3)
	for conn := range 3 {
		for at := range p.Due(conn) {
			all[conn+3*counts[conn]] = at
			counts[conn]++
		}
	}
	if counts[0] != 4 || counts[1] != 3 || counts[2] != 3 {
		t.Fatalf("the connections got %v times, want 4, 3 and 3", counts)
	}
	for i := 1; i < len(all); i++ {
		if step := all[i].Sub(all[i-1]); step != time.Millisecond {
			t.Errorf("time %d is %v after the one before, want 1ms", i, step)
		}
	}
	if time.Now().Before(all[9]) {
		t.Error("times were given out before they had come")
	}
}

func TestThePacerMakesBurstsDueTogether(t *testing.T) {
	p := NewPacer(1000, 2, 10*time.Millisecond)
	p.Burst = 4
	p.Run(t.Context())
	var all [10]time.Time
	for i := range all {
		all[i] = <-p.Due(i % 2)
	}
	for i, at := range all {
		if got, want := at.Sub(all[0]), time.Duration(i-i%4)*time.Millisecond; got != want {
			t.Errorf("request %d is due after %v, want %v", i, got, want)
		}
	}
}
