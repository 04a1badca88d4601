package scenario

import (
	"embed"
	"errors"
	"fmt"
)

//go:embed scenarios/*.yaml
var files embed.FS

// order is that of reports: first how it is when all is well, then what servers, links and clients do to it,
// then what it costs. Each is scenarios/NAME.yaml.
var order = []string{
	"steady",
	"leader-killed",
	"node-killed",
	"leader-paused",
	"partition-minority",
	"leader-isolated",
	"majority-lost",
	"dc-link-cut",
	"servers-restart",
	"slow-disk",
	"instances-die-one",
	"instances-die-tenth",
	"instances-die-half",
	"clients-restart",
	"flapping",
	"registration-storm",
	"read-storm",
	"heartbeats",
}

// Builtin are the scenarios that come with the program, in the order of reports.
func Builtin() ([]Scenario, error) {
	var all []Scenario
	var errs []error
	for _, name := range order {
		s, err := builtin(name)
		all, errs = append(all, s), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
}

func builtin(name string) (Scenario, error) {
	file := name + ".yaml"
	text, err := files.ReadFile("scenarios/" + file)
	if err != nil {
		return Scenario{}, fmt.Errorf("scenario %s: %w", name, err)
	}
	return Parse(file, text)
}
