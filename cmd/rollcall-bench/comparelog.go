package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	reports "github.com/seed-20419f34/rollcall/cmd/bench/report"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// trialsFile holds the trials of a comparison that goes on, or was interrupted: its plan in the first line, then each
// trial in a line of its own.
const trialsFile = "trials.jsonl"

// trialLog is such a file. One goroutine uses it.
type trialLog struct {
	file *os.File
	done []trial.Trial // of the run that goes on
}

// logPlan is what two runs must have in common, or one cannot go on with the other's trials.
type logPlan struct {
	Version   string              `json:"version"`
	Plan      trial.Plan          `json:"plan"`
	Scenarios []scenario.Scenario `json:"scenarios"`
}

func (p *comparePlan) logged() logPlan {
	plan := p.Plan
	plan.LeftOut = nil
	return logPlan{version, plan, p.scenarios}
}

// openTrials begins the file of a run in a directory, or goes on with the one that is there. A directory that holds
// another run is refused.
func openTrials(dir string, p *comparePlan, resume bool) (*trialLog, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, trialsFile)
	if resume {
		return resumeTrials(path, p)
	}
	for _, name := range []string{trialsFile, reports.JSONFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s holds another run (%s): name another directory, go on with that run by --resume, or remove it", dir, name)
		}
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	l := &trialLog{file: file}
	if err := l.line(p.logged()); err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(path))
	}
	return l, nil
}

// resumeTrials reads what there is. A last line that was cut off is dropped.
func resumeTrials(path string, p *comparePlan) (*trialLog, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--resume: there is no run to go on with: %s is missing", path)
	} else if err != nil {
		return nil, fmt.Errorf("--resume: %w", err)
	}
	l := &trialLog{file: file}
	whole, err := l.read(p)
	if err == nil {
		err = file.Truncate(whole)
	}
	if err == nil {
		_, err = file.Seek(whole, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--resume: %s: %w", path, err), file.Close())
	}
	return l, nil
}

// read reads the trials that are whole, and returns where the last one ends.
func (l *trialLog) read(p *comparePlan) (whole int64, err error) {
	lines := bufio.NewReaderSize(l.file, 1<<20)
	want, err := json.Marshal(p.logged())
	if err != nil {
		return 0, err
	}
	head, err := lines.ReadBytes('\n')
	if err != nil || !bytes.Equal(bytes.TrimSpace(head), want) {
		return 0, errors.New("it was begun by another version, or with other flags: give those (but for --only)")
	}
	whole = int64(len(head))
	for {
		line, err := lines.ReadBytes('\n')
		var t trial.Trial
		switch {
		case errors.Is(err, io.EOF):
			return whole, nil
		case err != nil:
			return 0, err
		case json.Unmarshal(line, &t) != nil:
			return 0, fmt.Errorf("the line at byte %d holds no trial", whole)
		}
		l.done = append(l.done, t)
		whole += int64(len(line))
	}
}

// keep appends a trial. It is on the disk when keep returns.
func (l *trialLog) keep(t *trial.Trial) error {
	if err := l.line(t); err != nil {
		return fmt.Errorf("%w; the trials before it are in %s: make room, and go on with --resume", err, l.file.Name())
	}
	return nil
}

func (l *trialLog) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := l.file.Write(append(text, '\n')); err != nil {
		return err
	}
	return l.file.Sync()
}

// close closes the file, and removes it if the report has all that is in it.
func (l *trialLog) close(whole bool) error {
	err := l.file.Close()
	if whole {
		err = errors.Join(err, os.Remove(l.file.Name()))
	}
	return err
}
