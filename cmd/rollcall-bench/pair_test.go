package main

import "testing"

func TestTheCounterOfAnIndexFollowsTheLastDash(t *testing.T) {
	for _, tc := range []struct {
		index string
		want  uint64 // 0: an error
	}{
		{index: "9b2-1-4711", want: 4711},
		{index: "4711", want: 4711},
		{index: "9b2-"},
		{index: ""},
	} {
		if got, err := indexNumber(tc.index); got != tc.want || (err == nil) != (tc.want > 0) {
			t.Errorf("%q: got %d, %v, want %d", tc.index, got, err, tc.want)
		}
	}
}
