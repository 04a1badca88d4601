// Command devtool examines Rollcall's code and its tests: it measures the inner order of packages, and shows that tests
// find faults.
//
//	go run ./internal/devtool shape [-check] [-packages] [-v PACKAGE]
//	go run ./internal/devtool faults [-times 3] [-seeds 100] [NAME…]
//	go run ./internal/devtool mutants [-seed 1] [-n 60] -by COMMAND [-by COMMAND] DIRECTORY…
//	go run ./internal/devtool mutants -list FILE -by COMMAND
//
// shape says whether the files of a package form layers. A file uses another one of its package if an identifier in it
// names what the other one declares: a function, type, variable, constant, method or field. Two files are one pair,
// however many such uses there are; two that use each other are two pairs. An order of the files puts what is used
// before what uses it. The program looks for one that few uses run against: it orders the components of files that use
// each other, arranges the files of a component by the heuristic of Eades, Lin and Smyth, and moves single files until
// no move helps. Layers are the files of the longest path through the pairs that run with the order. Tests, generated
// files and examples are not measured.
//
// faults and mutants change copies of files, which the go command uses instead of the files because of its flag
// -overlay, and run what should find the change. faults plants each fault of cmd/internal/sim/testdata/planted, or
// those that are named, and says which seeds of the simulator or which commands find it. It fails if one is not found
// each time.
//
// mutants draws places in the code below directories, changes one operator at each, and runs the commands, in order,
// until one fails. It prints a line for each, which -list reads again, even in another tree: a place is a file, a
// function and a number. Mutants that do not compile are not counted.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	kind, args := "", os.Args[1:]
	if len(args) > 0 {
		kind, args = args[0], args[1:]
	}
	var err error
	switch kind {
	case "shape":
		err = showShape(args)
	case "faults":
		err = plantFaults(args)
	case "mutants":
		err = plantMutants(args)
	default:
		err = fmt.Errorf("%q: want shape, faults or mutants", kind)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "devtool:", err)
		os.Exit(1)
	}
}

func showShape(args []string) error {
	flags := flag.NewFlagSet("shape", flag.ExitOnError)
	verbose := flags.String("v", "", "print the layers of one `package`, such as fsm/registry, and what runs against its order")
	docs := flags.Bool("packages", false, "print the first sentence of each package's doc")
	check := flags.Bool("check", false, "print nothing but what is over a limit, and fail if anything is")
	_ = flags.Parse(args) // it ends the program after an error
	shapes, err := load()
	switch {
	case err != nil:
		return err
	case *check:
		return errors.Join(overLimits(shapes)...)
	}
	return report(os.Stdout, shapes, *verbose, *docs)
}

func plantFaults(args []string) error {
	flags := flag.NewFlagSet("faults", flag.ExitOnError)
	times := flags.Int("times", 1, "how `often` each fault must be found")
	seeds := flags.Int("seeds", 100, "`how many` seeds of the simulator a fault is sought by")
	_ = flags.Parse(args) // it ends the program after an error
	return faults(flags.Args(), *times, *seeds)
}

// list is a flag that can be given more than once.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func plantMutants(args []string) (err error) {
	var by list
	flags := flag.NewFlagSet("mutants", flag.ExitOnError)
	seed := flags.Uint64("seed", 1, "the `number` by which mutants are drawn")
	n := flags.Int("n", 60, "`how many` mutants are drawn")
	places := flags.String("list", "", "take the mutants from the lines of a `file`")
	flags.Var(&by, "by", "a shell `command` that should fail; can be given more than once")
	_ = flags.Parse(args) // it ends the program after an error
	if len(by) == 0 {
		return errors.New("mutants needs a command: -by COMMAND")
	}
	var all []mutant
	if *places != "" {
		all, err = readMutants(*places)
	} else {
		all, err = drawMutants(*seed, flags.Args())
	}
	if err != nil {
		return err
	}
	return runMutants(all, *n, by)
}
