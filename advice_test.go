package rollcall_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// emptyDirectories are the places of the program that speak of an empty data directory, and why none of them can be read where
// no majority is left, or what they say of it.
var emptyDirectories = map[string]string{
	"store/disk/boltcheck.go":              "StartEmpty begins with the condition, and says what to do otherwise",
	"store/disk/identity.go":               "of a new node",
	"store/consensus/port/hello.go":        "the cluster goes on without what the directory has; or the node is removed first, which needs a leader",
	"store/consensus/membership/search.go": "a leader has removed the node; or there are two clusters, one of which goes on",
	"store/consensus/verify.go":            "begins with the condition; a leader logs it",
	"cmd/rollcall/recover.go":              "the recovered node is the cluster",
	"httpd/dashboard/acts.go":              "a leader has removed the node",
}

// TestAdviceOfAnEmptyDirectoryNamesItsCondition: it would destroy what is left of a cluster without a majority.
func TestAdviceOfAnEmptyDirectoryNamesItsCondition(t *testing.T) {
	found := map[string]bool{}
	for _, root := range []string{"client", "cmd", "fsm", "httpd", "internal", "replication", "store"} {
		need.OK(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text := string(need.Got(os.ReadFile(path))(t))
			if path = filepath.ToSlash(path); strings.Contains(text, "empty data director") || strings.Contains(text, "empty directory") {
				found[path] = true
				expect.That(t, emptyDirectories[path] != "", "%s speaks of an empty data directory: use disk.StartEmpty, or say here why a majority is left", path)
			}
			return nil
		}))
	}
	for path := range emptyDirectories {
		expect.That(t, found[path], "%s does not speak of an empty data directory any more", path)
	}
	text := string(need.Got(os.ReadFile("store/disk/boltcheck.go"))(t))
	_, advice, _ := strings.Cut(text, "const StartEmpty = \"")
	condition, _, _ := strings.Cut(advice, "empty data directory")
	expect.That(t, strings.HasPrefix(condition, "if the other nodes serve without this one") && strings.Contains(advice, "if not, keep the directories of all nodes: rollcall recover"),
		"StartEmpty does not begin with its condition, or does not say what to do otherwise")
}
