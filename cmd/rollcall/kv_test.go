package main

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestKVWatchPrintsWhatChanged(t *testing.T) {
	states := [][]client.Pair{
		{{Key: "b", ModifyIndex: 5, Value: []byte("blue\n")}, {Key: "c", ModifyIndex: 6}},
		{{Key: "a", ModifyIndex: 7, Value: []byte{0}}, {Key: "b", ModifyIndex: 8, Session: "s1"}, {Key: "c", ModifyIndex: 6}},
		{{Key: "b", ModifyIndex: 9}},
		nil,
	}
	want := `T  present   b  5  blue
T  present   c  6  -
T  written   a  7  1 bytes
T  acquired  b  8  -
T  deleted   a  -  -
T  released  b  9  -
T  deleted   c  -  -
T  deleted   b  -  -
`
	var out strings.Builder
	now := time.UnixMilli(0)
	p := keyPrinter{out: &out, form: cli.Table, now: func() time.Time { return now }}
	for _, state := range states {
		need.OK(t, p.tree(state))
	}
	got := strings.ReplaceAll(out.String(), "1970-01-01T00:00:00.000Z", "T")
	expect.That(t, got == want, "got\n%swant\n%s", got, want)
}

func TestKVWatchPrintsALinePerChangeInJSON(t *testing.T) {
	var out strings.Builder
	p := keyPrinter{out: &out, form: cli.JSON}
	for _, state := range [][]client.Pair{{{Key: "a", ModifyIndex: 5, Value: []byte("x")}}, nil} {
		need.OK(t, p.tree(state))
	}
	want := `{"event":"present","key":"a","value":"eA==","flags":0,"lock_index":0,"create_index":0,"modify_index":5}
{"event":"deleted","key":"a","value":"","flags":0,"lock_index":0,"create_index":0,"modify_index":0}
`
	expect.That(t, out.String() == want, "got\n%swant\n%s", out.String(), want)
}
