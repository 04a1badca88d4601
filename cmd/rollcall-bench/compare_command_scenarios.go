package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

// comparedScenarios are those that run, and sentences about those that do not.
func (o *compareOptions) comparedScenarios() (chosen []scenario.Scenario, leftOut []string, err error) {
	all, err := scenario.Builtin()
	if err != nil {
		return nil, nil, err
	}
	if len(o.scenarios) > 0 {
		chosen, err = o.named(all)
	} else {
		chosen, leftOut = o.usual(all)
	}
	errs := []error{err}
	for i := range chosen {
		if o.quick {
			chosen[i].Rounds = 1
		}
		errs = append(errs, o.fits(chosen[i]))
	}
	return chosen, leftOut, errors.Join(errs...)
}

// usual are the scenarios that run where none is named.
func (o *compareOptions) usual(all []scenario.Scenario) (chosen []scenario.Scenario, leftOut []string) {
	for _, s := range all {
		switch {
		case o.quick && !s.Quick:
		case s.Datacenters > o.dcs:
			leftOut = append(leftOut, fmt.Sprintf("%s was left out: it needs %d datacenters (--dcs %d).", s.Title, s.Datacenters, s.Datacenters))
		default:
			chosen = append(chosen, s)
		}
	}
	return chosen, leftOut
}

// named are the scenarios that the flags name, each once.
func (o *compareOptions) named(all []scenario.Scenario) (chosen []scenario.Scenario, err error) {
	var errs []error
	for _, name := range o.scenarios {
		s, err := findScenario(all, name)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("--scenario: %w", err))
		case s.Datacenters > o.dcs:
			errs = append(errs, fmt.Errorf("--scenario: %s needs %d datacenters; give --dcs %d", name, s.Datacenters, s.Datacenters))
		case slices.ContainsFunc(chosen, func(other scenario.Scenario) bool { return other.Name == s.Name }):
			errs = append(errs, fmt.Errorf("--scenario: %s names %q, which is named already", name, s.Name))
		default:
			chosen = append(chosen, s)
		}
	}
	return chosen, errors.Join(errs...)
}

// findScenario finds a scenario by its name, or reads its file.
func findScenario(all []scenario.Scenario, name string) (scenario.Scenario, error) {
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	if ext := filepath.Ext(name); ext == ".yaml" || ext == ".yml" || strings.ContainsRune(name, filepath.Separator) {
		return scenario.ReadFile(name)
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return scenario.Scenario{}, fmt.Errorf("there is no scenario %q; name one of %s, or a .yaml file", name, strings.Join(names, ", "))
}

// fits is an error if a scenario's faults do not end within its load.
func (o *compareOptions) fits(s scenario.Scenario) error {
	length := o.trialLength()
	if own := s.Length.Duration(); own > 0 {
		length = own
	}
	if err := s.Fits(length); err != nil {
		return fmt.Errorf("%s in %v: %w", s.Name, length.Round(time.Millisecond), err)
	}
	return nil
}

// scenarioList is scenarios as a table.
type scenarioList []scenario.Scenario

func (l scenarioList) Table() [][]string {
	rows := [][]string{{"NAME", "QUICK", "DATACENTERS", "ROUNDS", "TITLE"}}
	for _, s := range l {
		rows = append(rows, []string{s.Name, cli.YesNo(s.Quick), strconv.Itoa(s.Datacenters), strconv.Itoa(s.Rounds), s.Title})
	}
	return rows
}
