package scenario

import "go.yaml.in/yaml/v3"

func (p *parser) scenario(s *Scenario) reader {
	return p.mapping(fields{
		"name":        p.text(&s.Name),
		"title":       p.text(&s.Title),
		"about":       p.text(&s.About),
		"quick":       p.flag(&s.Quick),
		"datacenters": p.whole(&s.Datacenters),
		"rounds":      p.whole(&s.Rounds),
		"length":      p.span(&s.Length),
		"load":        p.load(&s.Load),
		"storms":      p.storms(&s.Storms),
		"faults":      p.faults(&s.Faults),
		"settings":    p.settings(&s.Settings),
		"limits":      p.limits(&s.Limits),
	})
}

func (p *parser) load(l *Load) reader {
	return p.mapping(fields{
		"instances":   p.whole(&l.Instances),
		"heartbeat":   p.span(&l.Heartbeat),
		"lease":       p.span(&l.Lease),
		"registers":   p.number(&l.Registers),
		"writes":      p.number(&l.Writes),
		"reads":       p.number(&l.Reads),
		"fetches":     p.number(&l.Fetches),
		"deltas":      p.number(&l.Deltas),
		"watchers":    p.whole(&l.Watchers),
		"sightings":   p.number(&l.Sightings),
		"own-keys":    p.whole(&l.OwnKeys),
		"shared-keys": p.whole(&l.SharedKeys),
	})
}

func (p *parser) storms(to *[]Storm) reader {
	return p.list(func(key string, n *yaml.Node) {
		var s Storm
		p.mapping(fields{"at": p.moment(&s.At), "for": p.moment(&s.For), "load": p.rates(&s.Load)})(key, n)
		*to = append(*to, s)
	})
}

// rates reads those that a storm gives, and no others.
func (p *parser) rates(to *map[string]float64) reader {
	return func(key string, n *yaml.Node) {
		rates := make(map[string]float64)
		known := make(fields)
		for name := range rateFields(new(Load)) {
			known[name] = func(key string, n *yaml.Node) {
				var rate float64
				p.number(&rate)(key, n)
				rates[name] = rate
			}
		}
		p.mapping(known)(key, n)
		*to = rates
	}
}

func (p *parser) faults(to *[]Fault) reader {
	return p.list(func(key string, n *yaml.Node) {
		var f Fault
		p.mapping(fields{
			"at":        p.moment(&f.At),
			"for":       p.moment(&f.For),
			"kind":      p.text((*string)(&f.Kind)),
			"nodes":     p.text(&f.Nodes),
			"instances": p.text(&f.Instances),
			"delay":     p.span(&f.Delay),
		})(key, n)
		*to = append(*to, f)
	})
}

// settings reads the servers' settings, whose names this package does not know.
func (p *parser) settings(to *map[string]string) reader {
	return func(key string, n *yaml.Node) {
		known, values := make(fields), make(map[string]string)
		if n.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(n.Content); i += 2 {
				name := n.Content[i].Value
				known[name] = func(key string, n *yaml.Node) {
					var value string
					p.text(&value)(key, n)
					values[name] = value
				}
			}
		}
		p.mapping(known)(key, n)
		*to = values
	}
}

func (p *parser) limits(to *map[Mode]Limits) reader {
	return func(key string, n *yaml.Node) {
		limits := make(map[Mode]Limits)
		each := func(mode Mode) reader {
			return func(key string, n *yaml.Node) {
				var l Limits
				p.limitsOfMode(&l)(key, n)
				limits[mode] = l
			}
		}
		p.mapping(fields{string(CP): each(CP), string(AP): each(AP)})(key, n)
		*to = limits
	}
}

func (p *parser) limitsOfMode(l *Limits) reader {
	return p.mapping(fields{
		"write-gap":       optional(p.span, &l.WriteGap),
		"read-gap":        optional(p.span, &l.ReadGap),
		"write-success":   optional(p.number, &l.WriteSuccess),
		"read-success":    optional(p.number, &l.ReadSuccess),
		"converged":       optional(p.span, &l.Converged),
		"false-evictions": optional(p.whole, &l.FalseEvictions),
		"removal":         optional(p.span, &l.Removal),
		"may-lose":        p.flag(&l.MayLose),
	})
}
