package ownroutes

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/show"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// explain is GET /v1/rollcall/apps/{app}/{id}/explain.
func (c call) explain(v web.FreshView) (any, error) {
	key := c.Key()
	e, ok := show.Explain(v.View, key, show.Circumstances{
		Health: c.Service.Health(), Alone: c.WithoutConsensus,
		Moved: c.config.Moved,
		Peers: sync.OnceValue(func() api.Peers { return c.PeerStatus(c.R.Context()) }),
	})
	if !ok {
		return nil, &web.Refusal{Status: http.StatusNotFound, Text: fmt.Sprintf("nothing is remembered of %s: it was never registered, or it has been gone for more than 24 hours", key)}
	}
	return e, nil
}
