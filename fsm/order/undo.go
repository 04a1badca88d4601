package order

import "slices"

// Undo takes back the changes of an operation that may fail halfway. It is for data that changes in place: for a
// tree, a copy made before is enough.
type Undo struct{ steps []func() }

// Add adds the step that takes back the next change.
func (u *Undo) Add(step func()) { u.steps = append(u.steps, step) }

// Run takes all changes back, newest first. Nothing may be added meanwhile.
func (u *Undo) Run() {
	for _, step := range slices.Backward(u.steps) {
		step()
	}
}
