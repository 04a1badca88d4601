package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	reports "github.com/seed-20419f34/rollcall/cmd/bench/report"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	verdicts "github.com/seed-20419f34/rollcall/cmd/bench/verdict"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// trialsFile holds the trials of a comparison that is running, or was interrupted: its plan in the first line, then
// one trial per line.
const trialsFile = "trials.jsonl"

// trialLog is such a file. One goroutine uses it.
type trialLog struct {
	file *os.File
	size int64         // bytes of the complete lines
	wait time.Duration // pause between two tries to write to a full disk
	date string        // of the run's start
	done []trial.Trial // of a resumed run; incomplete or invalid ones are run again
}

// logPlan is what two runs must have in common for one to resume with the other's trials, except the date.
type logPlan struct {
	Version   string              `json:"version"`
	Date      string              `json:"date"`
	CPU       string              `json:"cpu"`
	Cores     int                 `json:"cores"`
	Plan      trial.Plan          `json:"plan"`
	Scenarios []scenario.Scenario `json:"scenarios"`
}

func (p *comparePlan) logged() logPlan {
	plan := p.Plan
	plan.LeftOut, plan.Only = nil, nil
	return logPlan{version, time.Now().Format(time.DateOnly), p.machine.CPU, p.machine.Cores, plan, p.scenarios}
}

// firstDifference names the first field in which two values of one struct differ, as in JSON, or returns "" if they
// are equal.
func firstDifference(was, is reflect.Value) string {
	for i := range is.NumField() {
		name, _, _ := strings.Cut(is.Type().Field(i).Tag.Get("json"), ",")
		before, now := was.Field(i), is.Field(i)
		switch {
		case sameJSON(before.Interface(), now.Interface()):
		case now.Kind() == reflect.Struct:
			return firstDifference(before, now)
		case now.Kind() == reflect.Slice: // too long to show
			return name
		default:
			return fmt.Sprintf("%s: %v then, %v now", name, before, now)
		}
	}
	return ""
}

// sameJSON compares values by their form in a file.
func sameJSON(a, b any) bool {
	left, err := json.Marshal(a)
	right, err2 := json.Marshal(b)
	return errors.Join(err, err2) == nil && bytes.Equal(left, right)
}

// openTrials starts the file of a run in a directory, or resumes the one that is there. It refuses a directory that
// holds another run.
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
	head := p.logged()
	l := &trialLog{file: file, wait: roomWait, date: head.Date}
	if err := errors.Join(lockFile(file), l.line(head)); err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(path))
	}
	return l, nil
}

// resumeTrials reads the existing file. It drops an incomplete last line.
func resumeTrials(path string, p *comparePlan) (*trialLog, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--resume: there is no run to go on with: %s is missing", path)
	} else if err != nil {
		return nil, fmt.Errorf("--resume: %w", err)
	}
	l := &trialLog{file: file, wait: roomWait}
	// Before reading anything: otherwise lines that another run appends meanwhile would be cut off.
	if err := lockFile(file); err != nil {
		return nil, errors.Join(fmt.Errorf("--resume: %s: %w", path, err), file.Close())
	}
	whole, err := l.read(p)
	if err == nil {
		l.size = whole
		err = l.rewind()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--resume: %s: %w", path, err), file.Close())
	}
	return l, nil
}

// read reads the complete trials, and returns where the last one ends.
func (l *trialLog) read(p *comparePlan) (whole int64, err error) {
	lines := bufio.NewReaderSize(l.file, 1<<20)
	text, err := lines.ReadBytes('\n')
	var head logPlan
	if err != nil || json.Unmarshal(text, &head) != nil {
		return 0, errors.New("its first line holds no plan")
	}
	l.date = head.Date
	own := p.logged()
	own.Date = head.Date
	if other := firstDifference(reflect.ValueOf(head), reflect.ValueOf(own)); other != "" {
		return 0, fmt.Errorf("it was begun otherwise, and can go on only as it began; what differs is %s%s", other, p.leftOut())
	}
	whole = int64(len(text))
	for number := 2; ; number++ {
		text, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return whole, nil
		case err != nil:
			return 0, err
		}
		if err := l.add(p, text); err != nil {
			return 0, fmt.Errorf("line %d: %w", number, err)
		}
		whole += int64(len(text))
	}
}

// add reads a trial of the plan from its line. A trial that was not completed, or is not valid, is left to be run
// again, except for loads of heartbeats alone, which are raised beyond what a machine can carry.
func (l *trialLog) add(p *comparePlan, text []byte) error {
	var t trial.Trial
	if err := json.Unmarshal(text, &t); err != nil {
		return fmt.Errorf("holds no trial: %w", err)
	}
	s := p.scenarioOf(&t)
	if s == nil {
		return fmt.Errorf("holds no trial of this run: scenario %q, column %q, round %d", t.Scenario, t.Column, t.Round)
	}
	if slices.ContainsFunc(l.done, func(d trial.Trial) bool {
		return d.Scenario == t.Scenario && d.Column == t.Column && d.Round == t.Round
	}) {
		return fmt.Errorf("holds %s in %s, round %d, a second time", t.Scenario, t.Column, t.Round)
	}
	if err := t.Check(); err != nil {
		return err
	}
	if t.Failed == "" && (s.HeartbeatsOnly() || len(verdicts.Invalid(&t)) == 0) {
		l.done = append(l.done, t)
	}
	return nil
}

// scenarioOf returns a trial's scenario, if the plan has it, whatever --only asks for, or nil.
func (p *comparePlan) scenarioOf(t *trial.Trial) *scenario.Scenario {
	for i, s := range p.scenarios {
		for _, c := range p.Columns {
			if s.Name == t.Scenario && c.Name == t.Column && t.Round >= 1 && t.Round <= c.RoundsOf(s, p.Rounds) {
				return &p.scenarios[i]
			}
		}
	}
	return nil
}

// leftOut says what the plan leaves out, as the end of a sentence: a missing program may explain the difference.
func (p *comparePlan) leftOut() string {
	if len(p.LeftOut) == 0 {
		return ""
	}
	return " (" + strings.Join(p.LeftOut, " ") + ")"
}

// roomWait is trialLog.wait of a run.
const roomWait = time.Second

// keep appends a trial, which is on the disk when keep returns. While the disk is full, keep says so and waits for
// room: otherwise the run would lose the trial.
func (l *trialLog) keep(ctx context.Context, t *trial.Trial, progress io.Writer) error {
	err := l.line(t)
	if isFull(err) {
		fmt.Fprintf(progress, "%v: make room. The run waits for it; if it is interrupted, this trial is lost, and --resume runs it again\n", err)
	}
	for isFull(err) {
		if !wait.For(ctx, l.wait) {
			return context.Cause(ctx)
		}
		if err = l.rewind(); err == nil {
			err = l.line(t)
		}
	}
	if err != nil {
		return fmt.Errorf("%w; the trials before it are in %s: make room, and go on with --resume", err, l.file.Name())
	}
	return nil
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// rewind removes a partly written line.
func (l *trialLog) rewind() error {
	err := l.file.Truncate(l.size)
	if err == nil {
		_, err = l.file.Seek(l.size, io.SeekStart)
	}
	return err
}

func (l *trialLog) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if _, err := l.file.Write(text); err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		return err
	}
	l.size += int64(len(text))
	return nil
}

// close closes the file, and removes it if the report contains everything in it.
func (l *trialLog) close(whole bool) error {
	err := l.file.Close()
	if whole {
		err = errors.Join(err, os.Remove(l.file.Name()))
	}
	return err
}
