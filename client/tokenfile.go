package client

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// longestToken bounds a token, in bytes: the header size that servers accept, with room for the rest.
const longestToken = 16 << 10

// checkToken checks that a text can be sent in a header. Its error never repeats the text.
func checkToken(text string) error {
	switch {
	case text == "":
		return errors.New("it is empty")
	case len(text) > longestToken:
		return fmt.Errorf("it has more than %d bytes", longestToken)
	case strings.ContainsFunc(text, func(c rune) bool { return c > unicode.MaxASCII || !unicode.IsGraphic(c) || c == ' ' }):
		return errors.New("it is not a token: a token is one word of ASCII characters")
	}
	return nil
}

// readToken reads the token in a file, and ignores white space around it. The error names the file, and shows nothing
// of its contents.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, longestToken+2))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if err := checkToken(token); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return token, nil
}

// tokenFile is a file with a token, which may be replaced at any time. It is read for each request: that costs a
// hundredth of a request, and no change is missed.
type tokenFile struct {
	path string

	mu     sync.Mutex
	last   string // that was read
	outage wait.Outage
}

// token returns the token in the file or, if that cannot be read, the last one that was read.
func (f *tokenFile) token() string {
	token, err := readToken(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.last = token
	}
	f.outage.Report(err, "the file of the token cannot be read, the token that it had stays in use",
		"the file of the token is read again", "file", f.path)
	return f.last
}
