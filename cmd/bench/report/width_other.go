//go:build !linux

package report

import "io"

// terminalWidth is a width that suits most terminals, in characters.
func terminalWidth(io.Writer) int { return 100 }
