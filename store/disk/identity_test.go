package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestIdentityIsKeptAndBootsRise(t *testing.T) {
	dir := t.TempDir()
	first := need.Got(OpenIdentity(dir, Owner{Mode: ModeCP, Node: "n1"}))(t)
	second := need.Got(OpenIdentity(dir, Owner{Mode: ModeCP, Node: "n1"}))(t)
	expect.That(t, first.ServerID == second.ServerID && NodeName(first.ServerID) == "n1",
		"server ids %q and %q: want the same one, of n1", first.ServerID, second.ServerID)
	expect.That(t, second.Boot > first.Boot && second.Before == first.Boot,
		"boots %d and %d after %d: want a higher one that knows the first", first.Boot, second.Boot, second.Before)
}

// TestIdentityHasAnotherBootAtEachStart though they begin with the same identity: a batch of the one must not be
// answered with what is remembered of the other.
func TestIdentityHasAnotherBootAtEachStart(t *testing.T) {
	for name, before := range map[string]uint64{"by the clock": 1, "the clock was set back": 1 << 60} {
		t.Run(name, func(t *testing.T) {
			dir, owner := t.TempDir(), Owner{Mode: ModeCP, Node: "n1"}
			original := need.Got(OpenIdentity(dir, owner))(t)
			original.Boot = before
			seen := map[uint64]bool{}
			for range 3 {
				need.OK(t, original.Save())
				id := need.Got(OpenIdentity(dir, owner))(t)
				expect.That(t, !seen[id.Boot], "two starts have boot %d", id.Boot)
				expect.That(t, id.Boot > before, "boot %d after %d, want a higher one", id.Boot, before)
				seen[id.Boot] = true
			}
		})
	}
}

// TestIdentityHasAHigherBootAtTheLaterOfTwoStarts however soon it comes: so a node that was started with an older copy is told so.
func TestIdentityHasAHigherBootAtTheLaterOfTwoStarts(t *testing.T) {
	dir, owner := t.TempDir(), Owner{Mode: ModeCP, Node: "n1"}
	original := need.Got(OpenIdentity(dir, owner))(t)
	last := original.Boot
	for range 10 {
		need.OK(t, original.Save())
		id := need.Got(OpenIdentity(dir, owner))(t)
		expect.That(t, id.Boot > last, "boot %d after %d, want a higher one", id.Boot, last)
		last = id.Boot
	}
}

func TestIdentitiesOfOneNameHaveDifferentServerIDs(t *testing.T) {
	a, errA := OpenIdentity(t.TempDir(), Owner{Mode: ModeCP, Node: "n1"})
	b, errB := OpenIdentity(t.TempDir(), Owner{Mode: ModeCP, Node: "n1"})
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	expect.That(t, a.ServerID != b.ServerID, "both are %q", a.ServerID)
}

func TestIdentityRefusesADataDirectoryThatDoesNotFit(t *testing.T) {
	tests := []struct {
		name, file, node string
		want             []string // parts of the error
	}{
		{"another node's", `{"level":1,"mode":"cp","node":"n2","server_id":"n2.aa"}`, "n1", []string{`belongs to node "n2"`, `this node is "n1"`}},
		{"another mode's", `{"level":1,"mode":"ap","node":"n1","server_id":"n1.aa"}`, "n1", []string{`mode "ap"`, `mode "cp"`}},
		{"a newer version's", `{"level":99,"mode":"cp","node":"n1","server_id":"n1.aa"}`, "n1", []string{"newer version"}},
		{"from before levels", `{"version":2,"mode":"cp","node":"n1","server_id":"n1.aa"}`, "n1", []string{"identity.json", "before the first release", "empty data directory"}},
		{"from before levels, in the other mode", `{"version":2,"mode":"ap","node":"n1","server_id":"n1.aa"}`, "n1", []string{"before the first release", "empty data directory"}},
		{"of no version", `{"mode":"cp","node":"n1","server_id":"n1.aa"}`, "n1", []string{"before the first release", "empty data directory"}},
		{"not JSON", `{"level":1,`, "n1", []string{"corrupt"}},
		{"empty", ``, "n1", []string{"corrupt"}},
		{"without a server id", `{"level":1,"mode":"cp","node":"n1"}`, "n1", []string{"corrupt"}},
		{"bad node name", ``, "n 1", []string{"node name", "letters"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			need.OK(t, os.WriteFile(filepath.Join(dir, "identity.json"), []byte(tt.file), 0o600))
			_, err := OpenIdentity(dir, Owner{Mode: ModeCP, Node: tt.node})
			need.That(t, err != nil, "was accepted")
			for _, part := range tt.want {
				expect.That(t, strings.Contains(err.Error(), part), "error %q does not say %q", err, part)
			}
		})
	}
}

func TestIdentityRefusesADataDirectoryOfAnotherModeOrDatacenter(t *testing.T) {
	ap := Owner{Mode: ModeAP, Node: "n1", Datacenter: "dc1"}
	tests := []struct {
		name          string
		first, second Owner
		want          []string // parts of the error; none: it is accepted
	}{
		{"the same", ap, ap, nil},
		{"CP, then AP", Owner{Mode: ModeCP, Node: "n1"}, ap, []string{`mode "cp"`, `mode "ap"`, "another directory"}},
		{"AP, then CP", ap, Owner{Mode: ModeCP, Node: "n1"}, []string{`mode "ap"`, `mode "cp"`, "another directory"}},
		{"another datacenter", ap, Owner{Mode: ModeAP, Node: "n1", Datacenter: "dc2"}, []string{`datacenter "dc1"`, `"dc2"`, "set datacenter"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			need.Got(OpenIdentity(dir, tt.first))(t)
			_, err := OpenIdentity(dir, tt.second)
			need.That(t, (err == nil) == (tt.want == nil), "got %v, want an error that says %q", err, tt.want)
			for _, part := range tt.want {
				expect.That(t, strings.Contains(err.Error(), part), "error %q does not say %q", err, part)
			}
		})
	}
}

func TestIdentityMustBeThereWithALog(t *testing.T) { refusedWithoutIdentity(t, RaftDir) }

func TestIdentityMustBeThereWithARegistry(t *testing.T) { refusedWithoutIdentity(t, LocalFile) }

func refusedWithoutIdentity(t *testing.T, left string) {
	dir := t.TempDir()
	need.OK(t, os.MkdirAll(filepath.Join(dir, left), 0o700))
	_, err := OpenIdentity(dir, Owner{Mode: ModeCP, Node: "n1"})
	expect.That(t, err != nil && strings.Contains(err.Error(), left), "a directory with %s and no identity: %v, want an error that names it", left, err)
}

func TestClusterIDDependsOnTheFoundersAlone(t *testing.T) {
	a := ClusterIDOf([]string{"n1.aa", "n2.bb", "n3.cc"})
	b := ClusterIDOf([]string{"n3.cc", "n1.aa", "n2.bb"})
	expect.That(t, a == b, "order matters: %s and %s", a, b)
	b = ClusterIDOf([]string{"n1.aa", "n2.bb", "n3.dd"})
	expect.That(t, a != b, "different founders make the same cluster %s", a)
}

// TestIdentityIsTheOneBeforeOrAfterACrash wherever the write was cut off: at the first start and at a later one.
func TestIdentityIsTheOneBeforeOrAfterACrash(t *testing.T) {
	owner := Owner{Mode: ModeCP, Node: "n1"}
	whole := t.TempDir()
	written := need.Got(OpenIdentity(whole, owner))(t)
	b := need.Got(os.ReadFile(filepath.Join(whole, identityFile)))(t)
	for n := 0; n <= len(b); n += 5 {
		first, later := t.TempDir(), t.TempDir()
		for _, dir := range []string{first, later} {
			need.OK(t, os.WriteFile(filepath.Join(dir, identityFile+".tmp"), b[:n], 0o600))
		}
		need.OK(t, os.WriteFile(filepath.Join(later, identityFile), b, 0o600))
		need.Got(OpenIdentity(first, owner))(t)
		need.OK(t, os.Link(filepath.Join(later, identityFile), filepath.Join(later, "before")))
		again := need.Got(OpenIdentity(later, owner))(t)
		before := need.Got(os.ReadFile(filepath.Join(later, "before")))(t)
		need.That(t, string(before) == string(b), "the file was written to where it stands: a crash would leave neither the old one nor the new one")
		need.That(t, again.ServerID == written.ServerID && again.Boot > written.Boot, "%d bytes were written: the node is %s in start %d", n, again.ServerID, again.Boot)
	}
}

func TestMakeDirMakesWhatIsAboveIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b", "c")
	for range 2 {
		need.OK(t, MakeDir(dir))
	}
	need.Got(os.ReadDir(dir))(t)
	need.OK(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	expect.That(t, MakeDir(filepath.Join(dir, "file", "d")) != nil, "a directory was made below a file")
}
