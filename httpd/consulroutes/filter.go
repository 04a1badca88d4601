package consulroutes

import (
	"fmt"
	"maps"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// filterLimit bounds the time that a filter takes for one response: a long one over a large registry has no other bound.
const filterLimit = 10 * time.Second

// errFilterTooSlow is the response to a filter that takes longer.
var errFilterTooSlow = consulError(fmt.Sprintf("the filter takes longer than %v for what it selects from: ask for less at once, or by a shorter filter", filterLimit))

// filter selects what the response to a call shows, by the call's parameter filter.
type filter[T any] struct {
	by  call
	is  *consul.Filter[T] // nil: everything is wanted
	end time.Time         // by which it is to be ready; zero: it has not begun
}

// filterOf reads the filter of a call whose response lists values of a type.
func filterOf[T any](c call) *filter[T] {
	is, err := consul.NewFilter[T](c.Text("filter"))
	if c.Err == nil {
		c.Err = err
	}
	return &filter[T]{by: c, is: is}
}

// wants says whether a value is selected. If that cannot be said, the call's Err says why, and nothing more is selected.
func (f *filter[T]) wants(value *T) bool {
	switch {
	case f.is == nil:
		return true
	case f.by.Err != nil:
		return false
	}
	now := time.Now()
	if f.end.IsZero() {
		f.end = now.Add(filterLimit)
	}
	if now.After(f.end) || f.by.R.Context().Err() != nil {
		f.by.Err = errFilterTooSlow
		return false
	}
	var wanted bool
	wanted, f.by.Err = f.is.Matches(value)
	return wanted
}

// of keeps of a list what is selected.
func (f *filter[T]) of(list []T) []T {
	if f.is == nil {
		return list
	}
	kept := list[:0] // not slices.DeleteFunc: it copies each of the large values that we only look at
	for i := range list {
		if f.wants(&list[i]) {
			kept = append(kept, list[i])
		}
	}
	return kept
}

// ofMap keeps of a map what is selected.
func (f *filter[T]) ofMap(values map[string]T) {
	maps.DeleteFunc(values, func(_ string, value T) bool { return !f.wants(&value) })
}
