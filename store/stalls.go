package store

// stallRow is a row of stalls of the lease clock of which each comes before the wait after the last one is
// over, as on a machine that gets a processor for a part of each second only. The wait alone would never
// end then. So what had ended before the row began goes on as soon as those who could not be heard had
// enough of the time between the stalls. All times are the lease clock's, in ms.
type stallRow struct {
	began int64 // its first stall
	going bool
	read  int64 // the last reading of the clock
	awake int64 // time between stalls since it began
}

// note is told each reading of the clock, and whether a stall came before it.
func (r *stallRow) note(now int64, stalled bool) {
	switch {
	case stalled && !r.going:
		*r = stallRow{began: now, going: true}
	case r.going && !stalled:
		r.awake += now - r.read
	}
	r.read = now
}

// over ends the row.
func (r *stallRow) over() { *r = stallRow{read: r.read} }

// long says that the row goes on although there was so much time between its stalls (ms), and when it began.
func (r *stallRow) long(awake int64) (began int64, ok bool) {
	return r.began, r.going && r.awake >= awake
}
