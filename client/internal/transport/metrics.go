package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// Collectors returns the metrics, for a registerer.
func (c *Cluster) Collectors() []prometheus.Collector {
	return []prometheus.Collector{c.requests, c.quarantined}
}

// operation names a call for the metrics. The set of values is small and free of user-given names.
func (q *Call) operation() string {
	switch {
	case q.eureka:
		return q.eurekaOperation()
	case len(q.path) > 2 && q.path[1] == "rollcall":
		return q.ownOperation()
	case len(q.path) > 1:
		return q.path[1] // of Consul's API
	}
	return "other"
}

func (q *Call) eurekaOperation() string {
	switch at := q.path[0]; {
	case at == "vips" || at == "svips":
		return "vip"
	case at != "apps" || len(q.path) == 3 && q.method == http.MethodGet:
		return "instance"
	case len(q.path) > 3:
		return q.path[3] // status or metadata
	}
	switch {
	case q.method == http.MethodPost:
		return "register"
	case q.method == http.MethodPut:
		return "renew"
	case q.method == http.MethodDelete:
		return "cancel"
	case len(q.path) == 1:
		return "apps"
	case q.path[1] == "delta":
		return "delta"
	}
	return "app"
}

// ownOperation returns the resource, unless that means something else in Eureka's API.
func (q *Call) ownOperation() string {
	switch resource := q.path[2]; resource {
	case "sessions":
		return "session"
	case "locks":
		return "lock"
	case "semaphores":
		return "semaphore"
	case "status":
		return "cluster"
	case "apps":
		if len(q.path) > 5 {
			return q.path[5] // what is done to an instance
		}
		return "instances"
	default:
		return resource
	}
}

// outcomeOf names the outcome of a try for the metrics; status is the response's.
func outcomeOf(status int, err error) string {
	var of *Refusal
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil:
		return class(status)
	case errors.Is(err, ErrClosed):
		return "closed"
	case errors.Is(err, ErrUnknownOutcome):
		return "unknown"
	case errors.As(err, &of):
		return class(of.Status)
	case errors.Is(err, ErrNeedsRollcall):
		return "4xx"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return "unreachable"
}

func class(status int) string { return fmt.Sprintf("%dxx", status/100) }
