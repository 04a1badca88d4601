package main

import (
	"strings"
	"testing"
)

func TestAWatcherFindsTheChangeInALine(t *testing.T) {
	f := benchFleet{name: "watched", size: 3}
	c := newCrowd(f)
	for _, tc := range []struct {
		name, line string
		want       int // -1: none
	}{
		{name: "change", line: `data: {"index":"a-7","action":"ADDED","why":"registered","app":"WATCHED-000","id":"` + f.id(2) + `","status":"UP"`, want: 2},
		{name: "longer than a buffer", line: `data: {"index":"a-7","id":"` + f.id(1) + `","instance":{"text":"` + strings.Repeat("x", 5000), want: 1},
		{name: "another instance", line: `data: {"index":"a-7","action":"ADDED","id":"other","status":"UP"}`, want: -1},
		{name: "start", line: `data: {"index":"a-7"}`, want: -1},
		{name: "rest of a long line", line: `"id":"` + f.id(1) + `"`, want: -1},
		{name: "id of an event", line: "id: a-7\n", want: -1},
	} {
		if i, ok := c.changeOf([]byte(tc.line)); ok != (tc.want >= 0) || ok && i != tc.want {
			t.Errorf("%s: got %d, %t, want %d", tc.name, i, ok, tc.want)
		}
	}
}
