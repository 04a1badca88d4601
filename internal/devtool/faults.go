package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
)

// faultsDir has the kept faults, one per file: a comment that says what the node does wrong, a line that says what
// finds it, and for each place the file, the text that occurs there once, and what is planted instead.
//
//	# A linearizable read is answered from the node's own state.
//	by: seeds
//	file: store/consensus/reader.go
//	<<<<
//	if stale {
//	====
//	if true {
//	>>>>
//
// by is seeds, or a shell command that fails.
const faultsDir = "cmd/internal/sim/testdata/planted"

type fault struct {
	name, by string
	files    map[string][]byte // as they are with the fault
}

var (
	byLine = regexp.MustCompile(`(?m)^by: (.+)$`)
	change = regexp.MustCompile(`(?ms)^file: (\S+)\n<<<<\n(.*?)\n====\n(.*?)\n?>>>>$`)
)

// readFault reads a fault, and the files that it changes.
func readFault(path string) (f fault, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	f.name, f.files = filepath.Base(path), map[string][]byte{}
	by, changes := byLine.FindSubmatch(text), change.FindAllSubmatch(text, -1)
	if by == nil || changes == nil {
		return f, fmt.Errorf("%s: want a line by: and places, each with file:, <<<<, ====, >>>>", path)
	}
	f.by = string(by[1])
	for _, c := range changes {
		file, before, after := string(c[1]), c[2], c[3]
		source := f.files[file]
		if source == nil {
			if source, err = os.ReadFile(file); err != nil {
				return f, fmt.Errorf("%s: %w", path, err)
			}
		}
		if n := bytes.Count(source, before); n != 1 {
			return f, fmt.Errorf("%s: the text to change occurs %d times in %s; it must occur once", path, n, file)
		}
		f.files[file] = bytes.Replace(source, before, after, 1)
	}
	return f, nil
}

// faults plants faults, and prints what finds each.
func faults(names []string, times, seeds int) error {
	paths, err := filepath.Glob(faultsDir + "/*")
	if err != nil {
		return err
	}
	var missed []error
	for _, path := range paths {
		if len(names) > 0 && !slices.Contains(names, filepath.Base(path)) {
			continue
		}
		f, err := readFault(path)
		if err != nil {
			return err
		}
		finds, err := f.find(times, seeds)
		if err != nil {
			return err
		}
		found := 0
		for _, by := range finds {
			if by != "" {
				found++
			}
			fmt.Printf("%-32s %s\n", f.name, by)
		}
		if found < times {
			missed = append(missed, fmt.Errorf("%s was found %d times of %d", f.name, found, times))
		}
	}
	return errors.Join(missed...)
}

// find returns what found a fault each time, or nothing.
func (f fault) find(times, seeds int) (finds []string, err error) {
	o, err := plant(f.files)
	if err != nil {
		return nil, err
	}
	defer o.remove()
	program := filepath.Join(o.dir, "sim.test")
	compile := "go test -c -o " + program + " ./cmd/internal/sim"
	if f.by != "seeds" {
		compile = "go vet ./" + filepath.Dir(slices.Sorted(maps.Keys(f.files))[0])
	}
	if says, err := o.run(compile); err != nil {
		return nil, fmt.Errorf("%s does not compile: %s", f.name, says)
	}
	for range times {
		if f.by == "seeds" {
			finds = append(finds, seek(program, seeds))
		} else if says, err := o.run(f.by); err != nil {
			finds = append(finds, firstFailure(says))
		} else {
			finds = append(finds, "")
		}
	}
	return finds, nil
}

// seek runs seeds, each in a process of its own, until one finds the fault.
func seek(program string, seeds int) string {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	found := make(chan string, 1)
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for seed := 1; seed <= seeds && ctx.Err() == nil; seed++ {
		all.Go(func() error {
			if says := runSeed(ctx, program, seed); says != "" && ctx.Err() == nil {
				select {
				case found <- fmt.Sprintf("seed %d: %s", seed, says):
				default:
				}
				cancel()
			}
			return nil
		})
	}
	_ = all.Wait() // no run returns an error
	select {
	case says := <-found:
		return says
	default:
		return ""
	}
}

// complaint matches what a run says of an invariant that does not hold, and of its end.
var complaint = regexp.MustCompile(`(?m)\bI\d+ [a-z]+: .*$|^panic: .*$|.* ended by itself: .*$|^virtual time has stood still.*$`)

// runSeed runs one seed. It returns what failed, or "".
func runSeed(ctx context.Context, program string, seed int) string {
	c := exec.CommandContext(ctx, program, "-test.run=^TestSeeds$", "-test.v", "-test.timeout=5m")
	c.Dir = "cmd/internal/sim"
	c.Env = append(os.Environ(), fmt.Sprintf("ROLLCALL_SIM_SEEDS=%d-%d", seed, seed))
	says, err := c.CombinedOutput()
	if err == nil {
		return ""
	}
	return cmp.Or(string(complaint.Find(says)), firstFailure(string(says)))
}
