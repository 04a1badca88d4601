// Package wait has three ways of waiting: for a broadcast, for a moment, and for each tick of an interval.
package wait
