// Command plant shows that tests find faults. It changes copies of files, which the go command uses instead of the
// files because of its flag -overlay, and runs what should find the change.
//
//	go run ./internal/plant faults [-times 3] [-seeds 100] [NAME…]
//	go run ./internal/plant mutants [-seed 1] [-n 60] -by COMMAND [-by COMMAND] DIRECTORY…
//	go run ./internal/plant mutants -list FILE -by COMMAND
//
// faults plants each fault of cmd/internal/sim/testdata/planted, or those that are named, and says which seeds of the
// simulator or which commands find it. It fails if one is not found each time.
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

// list is a flag that can be given more than once.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	var by list
	flags := flag.NewFlagSet("plant", flag.ExitOnError)
	times := flags.Int("times", 1, "how `often` each fault must be found")
	seeds := flags.Int("seeds", 100, "`how many` seeds of the simulator a fault is sought by")
	seed := flags.Uint64("seed", 1, "the `number` by which mutants are drawn")
	n := flags.Int("n", 60, "`how many` mutants are drawn")
	places := flags.String("list", "", "take the mutants from the lines of a `file`")
	flags.Var(&by, "by", "a shell `command` that should fail; can be given more than once")
	kind := ""
	if len(os.Args) > 1 {
		kind = os.Args[1]
		_ = flags.Parse(os.Args[2:]) // it ends the program after an error
	}
	var err error
	switch kind {
	case "faults":
		err = faults(flags.Args(), *times, *seeds)
	case "mutants":
		if len(by) == 0 {
			err = errors.New("mutants needs a command: -by COMMAND")
			break
		}
		var all []mutant
		if *places != "" {
			all, err = readMutants(*places)
		} else {
			all, err = drawMutants(*seed, flags.Args())
		}
		if err == nil {
			err = runMutants(all, *n, by)
		}
	default:
		err = fmt.Errorf("%q: want faults or mutants", kind)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "plant:", err)
		os.Exit(1)
	}
}
