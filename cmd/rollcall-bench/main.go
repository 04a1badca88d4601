// Command rollcall-bench measures clusters of Rollcall from outside: it puts load on one that runs (run), measures
// clusters of this machine against named baselines (ratios), and compares the modes under the same load and the same
// faults (compare). docs/benchmarks.md and docs/comparison.md explain the results. The loads, scenarios and verdicts
// are packages under cmd/bench. Its files:
//
//	main.go            the commands, the server's program, and a description of the machine
//	loadcommand.go     bench run: a load on a cluster that runs
//	comparecommand.go  bench compare: the modes under the same scenarios
//	comparedcluster.go the clusters that it starts; system_linux.go what the system knows of their processes
//	ratios.go          bench ratios: the plan, the rounds and the report; what every part measures with (underOneLeader,
//	                   measureBeside)
//	rows.go            the rows of its result, with their floors and goals
//	writes.go          renewals, registrations, fetches, and the cost of a large registry; single exchanges, which other
//	                   parts use too (timedExchange, exchangeUntilServed)
//	leases.go          evictions, and the way of changes to watchers (withConn, recordLatencies)
//	replication.go     two datacenters (nodeMetric)
//	coordination.go    keys, locks and sessions
//	idle.go            a cluster that has nothing to do, and lone writes to it
//	cluster.go         the clusters that ratios measures, and the baselines
//	fleet.go           the instances of its loads
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
)

// version is set by the linker (Makefile).
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(cli.ExitCode(os.Stderr, "rollcall-bench", newRootCommand().ExecuteContext(ctx)))
}

func newRootCommand() *cobra.Command {
	return cli.Root("rollcall-bench", "Measures clusters of Rollcall",
		newBenchRunCommand(), newBenchCompareCommand(), newBenchRatiosCommand(), newBenchBareCommand(), newBenchRaftCommand())
}

// server is the program whose clusters are measured.
type server struct{ path string }

func (s *server) addFlag(f *pflag.FlagSet) {
	f.StringVar(&s.path, "server", "", "the server's program (default: the rollcall beside this program)")
}

// find completes the path where the flag was not given.
func (s *server) find() error {
	if s.path != "" {
		return nil
	}
	own, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	s.path = filepath.Join(filepath.Dir(own), "rollcall")
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no %s; name the server's program by --server", s.path)
	}
	return nil
}

// serverDefaults are settings of a server that the baselines share, because they are not what is compared.
type serverDefaults struct {
	GC struct {
		Percent int `yaml:"percent"`
	} `yaml:"gc"`
	Test struct {
		CommitTimeout time.Duration `yaml:"commit-timeout"`
	} `yaml:"test"`
}

// defaults asks the server's program for them.
func (s *server) defaults(ctx context.Context) (d serverDefaults, err error) {
	text, err := exec.CommandContext(ctx, s.path, "config", "show", "--effective", "--data-dir", "unused").Output()
	if err != nil {
		return d, fmt.Errorf("ask %s for its settings: %w", s.path, err)
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("read the settings of %s: %w", s.path, err)
	}
	if d.GC.Percent == 0 || d.Test.CommitTimeout == 0 {
		return d, fmt.Errorf("%s config show names no gc.percent or no test.commit-timeout", s.path)
	}
	return d, nil
}

// clearSettings keeps the environment's settings from the nodes: they are measured with the defaults. Variables that
// plant faults into a server stay.
func clearSettings() error {
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !isSetting(name) {
			continue
		}
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	return nil
}

// isSetting says whether a variable of the environment is a setting of Rollcall, or of a Java program or Spring's servers.
func isSetting(name string) bool {
	switch name {
	case "ROLLCALL_PLANTED", "ROLLCALL_PARENT_PIPE":
		return false
	case "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS":
		return true
	}
	return slices.ContainsFunc([]string{"ROLLCALL_", "EUREKA_", "SPRING_", "SERVER_", "MANAGEMENT_", "LOGGING_"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

// describeMachine tries the disk on which dir lies. Nothing that names the machine or its owner is in it.
func describeMachine(dir string) (trial.Machine, error) {
	sync, err := timeSync(dir)
	if err != nil {
		return trial.Machine{}, fmt.Errorf("try the disk: %w", err)
	}
	return trial.Machine{
		CPU:    procField("/proc/cpuinfo", "model name"),
		Cores:  runtime.NumCPU(),
		Memory: memoryText(procField("/proc/meminfo", "MemTotal")),
		Disk:   describeDisk(dir),
		Sync:   fmt.Sprintf("4 KiB appended and synced in %.2f ms (p50)", float64(sync.Microseconds())/1000),
		Kernel: kernelText(runtime.GOOS, firstOf("/proc/sys/kernel/osrelease")),
		Go:     runtime.Version() + " " + runtime.GOARCH,
	}, nil
}

const unknownPart = "unknown"

// procField returns the first value of a key in a file of "key: value" lines.
func procField(path, key string) string {
	text, _ := os.ReadFile(path) // absent on other systems
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return unknownPart
}

func firstOf(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// kernelText leaves out what a builder appended to the release, as in "6.1.2-site-7".
func kernelText(system, release string) string {
	number, _, _ := strings.Cut(release, "-")
	return strings.TrimSpace(strings.ToUpper(system[:1]) + system[1:] + " " + number)
}

// memoryText turns "24101112 kB" into GiB.
func memoryText(total string) string {
	kb, err := strconv.ParseFloat(strings.TrimSuffix(total, " kB"), 64)
	if err != nil {
		return unknownPart
	}
	return fmt.Sprintf("%.0f GiB", kb/(1<<20))
}

// describeDisk names the file system and the kind of device below dir.
func describeDisk(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return unknownPart
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo") // absent on other systems
	m, ok := findMount(string(mounts), dir)
	if !ok {
		return unknownPart
	}
	return m.kind + " on " + deviceKind(m)
}

type mount struct{ point, device, kind, source string }

// findMount returns the mount on which an absolute path lies: the longest, and the last of equals,
// which hides the others. Fields are as in proc(5).
func findMount(mountinfo, path string) (best mount, ok bool) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if len(fields) < 5 || dash < 0 || dash+2 >= len(fields) {
			continue
		}
		m := mount{point: fields[4], device: fields[2], kind: fields[dash+1], source: fields[dash+2]}
		below, err := filepath.Rel(m.point, path)
		if err == nil && below != ".." && !strings.HasPrefix(below, "../") && len(m.point) >= len(best.point) {
			best, ok = m, true
		}
	}
	return best, ok
}

// deviceKind says what the mount's device is.
func deviceKind(m mount) string {
	name := filepath.Base(m.source)
	switch {
	case strings.HasPrefix(name, "vd"), strings.HasPrefix(name, "xvd"):
		return "a virtual disk"
	case strings.HasPrefix(name, "nvme"):
		return "an NVMe disk"
	}
	sys := "/sys/dev/block/" + m.device
	switch firstOf(sys+"/queue/rotational") + firstOf(sys+"/../queue/rotational") { // a partition has none of its own
	case "0":
		return "a solid-state disk"
	case "1":
		return "a rotating disk"
	}
	return "an unknown device"
}

// timeSync returns the median time of a 4 KiB append with fsync.
func timeSync(dir string) (time.Duration, error) {
	const tries = 200
	times, err := timeSyncs(dir, tries)
	if err != nil {
		return 0, err
	}
	slices.Sort(times)
	return times[tries/2], nil
}

// timeSyncs is what each of some durable writes takes.
func timeSyncs(dir string, tries int) ([]time.Duration, error) {
	f, err := os.CreateTemp(dir, "sync-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 4<<10)
	times := make([]time.Duration, tries)
	for i := range times {
		begin := time.Now()
		if _, err := f.Write(block); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		times[i] = time.Since(begin)
	}
	return times, nil
}

// machineHealth is what the machine has done until now, and what a durable write in a directory takes now.
func machineHealth(dir string) func() (trial.Health, error) {
	return func() (trial.Health, error) {
		busy, own, err := machineUsage()
		if err != nil {
			return trial.Health{}, err
		}
		syncs, err := timeSyncs(dir, 1)
		if err != nil {
			return trial.Health{}, err
		}
		return trial.Health{Busy: trial.Of(busy), Own: trial.Of(own), Sync: trial.Of(syncs[0])}, nil
	}
}
