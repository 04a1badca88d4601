package report

// sentences say in words what happened in a scenario, from its verdicts: the faults, what each mode did with
// them, how long it took, what was lost. One sentence each, the most important first.
func (r *Report) sentences(scenario string) []string { panic("not written") }

// tradeOff is one line of the table that helps to choose.
type tradeOff struct {
	Question string // as in "Writes accepted by a minority"
	CP, AP   string // what was measured, with units
	Better   string // "cp", "ap", or empty where neither is
}

// tradeOffs are the table, over all scenarios.
func (r *Report) tradeOffs() []tradeOff { panic("not written") }
