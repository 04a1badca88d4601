package probe

import (
	"container/heap"
	"time"
)

// schedule is the checks that wait for their time, the first of them on top.
type schedule []*check

// add puts a check in.
func (s *schedule) add(c *check) { heap.Push(s, c) }

// remove takes a check out that is in.
func (s *schedule) remove(c *check) { heap.Remove(s, c.place) }

// due takes out the first check if its time has come.
func (s *schedule) due(now time.Time) (*check, bool) {
	if len(*s) == 0 || (*s)[0].due.After(now) {
		return nil, false
	}
	return heap.Pop(s).(*check), true
}

// Len implements heap.Interface.
func (s schedule) Len() int { return len(s) }

// Less implements heap.Interface.
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }

// Swap implements heap.Interface.
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	c := x.(*check)
	c.place = len(*s)
	*s = append(*s, c)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	c := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return c
}
