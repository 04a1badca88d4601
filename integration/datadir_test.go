package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// mustRefuseToStart starts a node that must end by itself with an error, and say each of the words.
func mustRefuseToStart(t *testing.T, n *Node, words ...string) {
	t.Helper()
	if err := os.WriteFile(n.LogFile, nil, 0o600); err != nil { // what earlier processes said does not count
		t.Fatal(err)
	}
	n.Start(t)
	code := n.ExitCode(t, ReadyLimit)
	expect.That(t, code != 0, "exit code 0, want an error")
	said := n.Output(t)
	for _, word := range words {
		expect.That(t, strings.Contains(said, word), "it does not say %q:\n%s", word, said)
	}
	expect.That(t, !strings.Contains(said, "panic") && !strings.Contains(said, "goroutine "), "it did not refuse, it crashed:\n%s", said)
}

// Package store tests every way in which a directory does not fit, or is damaged; here the program says so, and ends.

func TestDataDirectoryOfAnotherNodeIsRefused(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, Config{AP: ap, Nodes: 1})
		n := c.Nodes[0]
		n.Stop(t)
		n.Settings["node.name"] = "somebody-else"
		mustRefuseToStart(t, n, n.Dir, `"n1"`, `"somebody-else"`)
	})
}

func TestDataDirectoryOfAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	own, other := StartCluster(t, Config{}), StartCluster(t, Config{})
	status := need.Got(other.Nodes[2].Status())(t)
	stray := own.Nodes[2]
	stray.Stop(t)
	for _, n := range other.Nodes {
		n.Stop(t)
	}
	stray.Settings["data.dir"] = other.Nodes[2].Dir
	mustRefuseToStart(t, stray, status.ClusterID, "cluster")
}

func TestCorruptDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	for name, corrupt := range map[string]func(t *testing.T, dir string) (named string){
		"identity that is not JSON": func(t *testing.T, dir string) string {
			overwrite(t, filepath.Join(dir, "identity.json"), "not an identity")
			return "identity.json"
		},
		"data that is something else": func(t *testing.T, dir string) string {
			file := dataFile(t, dir)
			overwrite(t, file, strings.Repeat("not a log ", 10_000))
			return filepath.Base(file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, ap bool) {
				n := StartCluster(t, Config{AP: ap, Nodes: 1}).Nodes[0]
				mustRegister(t, n, Instance{App: "LOST", ID: "lost"})
				n.Stop(t)
				mustRefuseToStart(t, n, corrupt(t, n.Dir))
			})
		})
	}
}

// dataFile finds the file of the Raft log, or of what a node without consensus has, in a data directory:
// the largest one.
func dataFile(t *testing.T, dir string) (largest string) {
	t.Helper()
	var size int64
	err := filepath.Walk(dir, func(file string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && info.Size() > size {
			largest, size = file, info.Size()
		}
		return err
	})
	need.That(t, err == nil && largest != "", "no data in %s: %v", dir, err)
	return largest
}

func overwrite(t *testing.T, file, content string) {
	t.Helper()
	need.OK(t, os.WriteFile(file, []byte(content), 0o600))
}

func TestAnOlderCopyOfADataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	n := c.Others(c.Leader())[0]
	n.Stop(t)
	older := filepath.Join(t.TempDir(), "older")
	need.OK(t, os.CopyFS(older, os.DirFS(n.Dir)))
	n.Start(t)
	n.WaitReady(t)
	n.Stop(t)
	n.Dir, n.Settings["data.dir"] = older, older
	mustRefuseToStart(t, n, older, "older copy of its data directory", "rollcall members remove "+n.Name)
	expect.Equal(t, n.ExitCode(t, ReadyLimit), 3, "exit code")
	mustRegister(t, c.Leader(c.Running()...), Instance{App: "orders", ID: "after"})
}
