package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// driver is a stock client in a process of another language, told what to do by lines of JSON on
// its stdin that it answers by lines of JSON on its stdout. The programs are under clients/.
type driver struct {
	stdin     io.WriteCloser
	answers   chan driverAnswer // closed when the program has ended
	overrides bool              // the client has calls for overrides
	delta     bool              // the client is to fetch deltas, where that is a setting
}

type driverCommand struct {
	Do     string    `json:"do"`
	URL    string    `json:"url,omitempty"`
	App    string    `json:"app,omitempty"`
	ID     string    `json:"id,omitempty"`
	Lease  int       `json:"lease,omitempty"` // seconds
	Status string    `json:"status,omitempty"`
	Delta  bool      `json:"delta,omitempty"`
	Args   arguments `json:"args,omitempty"` // where Do names a method of the client
}

// arguments of a client's method, by name.
type arguments map[string]any

type driverAnswer struct {
	Error     string            `json:"error"`
	Instances map[string]string `json:"instances"`
	Result    json.RawMessage   `json:"result"` // of a client's method
}

// startDriver runs a program in a directory under clients/. It ends with the test.
func startDriver(t *testing.T, dir string, program string, args ...string) *driver {
	t.Helper()
	log := filepath.Join(t.TempDir(), "stderr")
	stderr := need.Got(os.Create(log))(t)
	defer stderr.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir = filepath.Join("clients", dir)
	cmd.Stderr = stderr
	stdin := need.Got(cmd.StdinPipe())(t)
	stdout := need.Got(cmd.StdoutPipe())(t)
	need.OKf(t, cmd.Start(), "start the %s client", dir)
	d := &driver{stdin: stdin, answers: make(chan driverAnswer)}
	go d.read(stdout)
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill() // it may have ended already
		for range d.answers {
			// what nobody waited for
		}
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the client: the end of %s:\n%s", log, localcluster.LastLines(log, 40))
		}
	})
	return d
}

func (d *driver) read(stdout io.Reader) {
	defer close(d.answers)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var answer driverAnswer
		if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
			answer.Error = fmt.Sprintf("not an answer: %q", lines.Text())
		}
		d.answers <- answer
	}
}

// do sends one command and waits for its answer.
func (d *driver) do(command driverCommand) (driverAnswer, error) {
	if err := json.NewEncoder(d.stdin).Encode(command); err != nil {
		return driverAnswer{}, err
	}
	select {
	case answer, ok := <-d.answers:
		if !ok {
			return answer, errors.New("the client's program has ended")
		}
		if answer.Error != "" {
			return answer, errors.New(answer.Error)
		}
		return answer, nil
	case <-time.After(clientLimit):
		return driverAnswer{}, fmt.Errorf("no answer to %q within %v", command.Do, clientLimit)
	}
}

func (d *driver) Start(url, app, id string, lease int) error {
	_, err := d.do(driverCommand{Do: "start", URL: url, App: app, ID: id, Lease: lease, Delta: d.delta})
	return err
}

func (d *driver) Discover(app string) (map[string]string, error) {
	answer, err := d.do(driverCommand{Do: "discover", App: app})
	return answer.Instances, err
}

func (d *driver) Override(status string) error {
	if !d.overrides {
		return errNoCall
	}
	_, err := d.do(driverCommand{Do: "override", Status: status})
	return err
}

func (d *driver) Restore() error {
	if !d.overrides {
		return errNoCall
	}
	_, err := d.do(driverCommand{Do: "restore"})
	return err
}

func (d *driver) Stop() error {
	_, err := d.do(driverCommand{Do: "stop"})
	return err
}
