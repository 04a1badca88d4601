package compare

import (
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
)

// turn says which trial is to be run.
type turn struct {
	scenario scenario.Scenario
	mode     scenario.Mode
	round    int // from 1
	seed     uint64
}

// turns are all trials in their order. Alternating keeps what changes slowly in the machine from counting for one
// mode only.
func (c Config) turns() []turn {
	var all []turn
	modes := slices.Clone(c.Plan.Modes)
	for round := 1; ; round++ {
		before := len(all)
		for _, s := range c.Scenarios {
			if round > s.Rounds*max(c.Plan.Repeat, 1) {
				continue
			}
			for _, mode := range modes {
				all = append(all, turn{s, mode, round, seed(c.Plan.Seed, s.Name, round)})
			}
		}
		if len(all) == before {
			return all
		}
		slices.Reverse(modes)
	}
}

// seed is that of both modes in a round. It has 53 bits, which any reader of the raw file can hold.
func seed(base uint64, name string, round int) uint64 {
	h := fnv.New64a()
	h.Write([]byte(strconv.FormatUint(base, 10) + " " + name + " " + strconv.Itoa(round)))
	return h.Sum64() >> 11
}
