// Cells of tables that more than one command shows.

package main

import (
	"strconv"
	"time"
)

// clockTime shows ms since the Unix epoch; "" for none.
func clockTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}

// duration shows a number of ms as a duration.
func duration(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

func number[T uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

// unlessZero shows a number, or "" for 0.
func unlessZero(n uint64) string {
	if n == 0 {
		return ""
	}
	return number(n)
}

// rounded shows a number of ms as a duration in whole seconds.
func rounded(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Round(time.Second).String()
}

// unlessEmpty returns the rows of a further table, or nil if it has only a header.
func unlessEmpty(rows [][]string) [][]string {
	if len(rows) == 2 {
		return nil
	}
	return rows
}
