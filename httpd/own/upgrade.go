package own

import (
	"context"
	"errors"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Upgrade shows and raises the levels of the formats that the nodes read and write.
type Upgrade interface {
	Upgrade(ctx context.Context) api.Upgrade
	// Finalize raises the written level by one. It ends within the time of a write, 4 s. Errors: codec.NotYet and
	// registry.ErrNoLeader (nothing was done), registry.ErrUnknownOutcome.
	Finalize(ctx context.Context) error
}

var errNoUpgrade = &web.Refusal{Status: http.StatusNotImplemented, Text: "this node does not say which levels of the formats it writes"}

// upgradeStatus is GET /v1/rollcall/upgrade.
func (c call) upgradeStatus() (any, error) {
	if c.config.Upgrade == nil {
		return nil, errNoUpgrade
	}
	return c.config.Upgrade.Upgrade(c.R.Context()), nil
}

// finalizeUpgrade is POST /v1/rollcall/upgrade/finalize.
func (c call) finalizeUpgrade() (any, error) {
	if c.config.Upgrade == nil {
		return nil, errNoUpgrade
	}
	if err := c.AllowedByNewest(); err != nil {
		return nil, err
	}
	err := web.WriteError(c.config.Upgrade.Finalize(c.R.Context()))
	if refused, ok := errors.AsType[codec.NotYet](err); ok {
		err = &web.Refusal{Status: http.StatusConflict, Text: string(refused), Cause: err}
	}
	if c.Did("upgrade_finalize", "", registry.Act{}, err) != nil {
		return nil, err
	}
	c.Log.Info("an operator had the next level of the formats written", "by", c.R.RemoteAddr)
	return c.config.Upgrade.Upgrade(c.R.Context()), nil
}
