package report

import (
	"io"
	"os"
	"syscall"
	"unsafe"
)

// terminalWidth is that of the terminal behind w in characters, at least 60 and at most 120: longer lines are hard to
// read. What is no terminal has 100.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 100
	}
	var size struct{ rows, columns, x, y uint16 }
	_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	if failed != 0 || size.columns == 0 {
		return 100
	}
	return min(max(int(size.columns), 60), 120)
}
