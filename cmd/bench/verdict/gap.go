package verdict

import (
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// gaps finds the time in which nobody got an answer, by bins. It begins with the first bin in which a call was due and
// no answer came, whenever the call was due that it answers, and ends with the last bin before the next
// answer in which a call was due or waited for that answer. A bin in which nothing was due, and nobody waited,
// neither begins nor ends it.
//
// So a server that lets its clients wait for 2 s and then answers all of them has a gap of 2 s, though every call
// succeeded. An answer counts as of the middle of the bin in which its call was due, plus the latency.
type gaps struct {
	bins []gapBin // by number
}

type gapBin struct {
	due      bool
	answered bool // an answer came in this bin
	waited   int  // the last bin in which an answer came to a call that was due in this one
}

func (g *gaps) add(b trial.Bin) {
	if b.Number < 0 {
		return
	}
	*g.at(b.Number) = gapBin{due: true, answered: g.at(b.Number).answered, waited: g.at(b.Number).waited}
	for latency := range pairs(b) {
		length := trial.BinLength.Microseconds()
		came := int((int64(b.Number)*length + length/2 + latency) / length)
		g.at(came).answered = true
		due := g.at(b.Number)
		due.waited = max(due.waited, came)
	}
}

func (g *gaps) at(number int) *gapBin {
	for len(g.bins) <= number {
		g.bins = append(g.bins, gapBin{})
	}
	return &g.bins[number]
}

// longest is the longest gap in seconds.
func (g *gaps) longest() float64 {
	longest, first, waited := 0, -1, -1
	for number, b := range g.bins {
		waited = max(waited, b.waited)
		switch {
		case b.answered:
			first = -1
		case first < 0 && b.due:
			first = number
			longest = max(longest, 1)
		case first >= 0 && (b.due || number <= waited):
			longest = max(longest, number-first+1)
		}
	}
	return (time.Duration(longest) * trial.BinLength).Seconds()
}
