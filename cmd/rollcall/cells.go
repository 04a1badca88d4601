// Cells of tables, as more than one command shows them.

package main

import (
	"strconv"
	"time"
)

// clockTime shows ms since the epoch; "" for none.
func clockTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}

// duration shows a number of ms as a duration.
func duration(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

func number[T uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

// unlessZero is a number, "" for 0.
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

// unlessEmpty is the rows of a further table, nil if it has only a head.
func unlessEmpty(rows [][]string) [][]string {
	if len(rows) == 2 {
		return nil
	}
	return rows
}
