package order

import "slices"

// Undo is how the changes of an operation are taken back that may fail in the middle. It is for what is changed in place:
// of a tree, a copy that was made before is enough.
type Undo struct{ steps []func() }

// Add adds the step that takes back the next change.
func (u *Undo) Add(step func()) { u.steps = append(u.steps, step) }

// Run takes all changes back, the newest first. Nothing may be added meanwhile.
func (u *Undo) Run() {
	for _, step := range slices.Backward(u.steps) {
		step()
	}
}
