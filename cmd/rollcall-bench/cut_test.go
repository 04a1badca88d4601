package main

import "testing"

func TestAWorkloadEndsAfterSoManyRequestsInAll(t *testing.T) {
	for _, tc := range []struct {
		n    int
		want [3]int // of each connection
	}{
		{n: 0, want: [3]int{0, 0, 0}},
		{n: 2, want: [3]int{1, 1, 0}},
		{n: 7, want: [3]int{3, 2, 2}},
	} {
		var got [3]int
		for conn := range got {
			next := inAll(tc.n, get1)(conn, len(got))
			for next() != nil {
				got[conn]++
			}
		}
		if got != tc.want {
			t.Errorf("%d: the connections send %v, want %v", tc.n, got, tc.want)
		}
	}
}
