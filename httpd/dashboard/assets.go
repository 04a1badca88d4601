package dashboard

import (
	"crypto/sha256"
	_ "embed" // the assets
	"encoding/hex"
	"net/http"

	"github.com/seed-20419f34/rollcall/httpd/web"
)

//go:embed assets/style.css
var style []byte

//go:embed assets/app.js
var script []byte

// idiomorph morphs a document into another one, and keeps focus and selection
// (https://github.com/bigskysoftware/idiomorph).
//
//go:embed assets/idiomorph.js
var idiomorph []byte

//go:embed assets/icon.svg
var icon []byte

// asset is a file that pages load. Its path contains its hash, so that browsers can keep it forever.
type asset struct {
	name, kind string
	content    []byte
	hash       string
}

var assets = []asset{
	newAsset("style.css", "text/css; charset=utf-8", style),
	newAsset("app.js", "text/javascript; charset=utf-8", script),
	newAsset("idiomorph.js", "text/javascript; charset=utf-8", idiomorph),
	newAsset("icon.svg", "image/svg+xml", icon),
}

func newAsset(name, kind string, content []byte) asset {
	sum := sha256.Sum256(content)
	return asset{name, kind, content, hex.EncodeToString(sum[:8])}
}

// assetPath returns the path of an asset for pages.
func assetPath(name string) string {
	for _, a := range assets {
		if a.name == name {
			return "/ui/assets/" + a.hash + "/" + a.name
		}
	}
	return ""
}

// asset is GET /ui/assets/{hash}/{name}.
func (c call) asset() (any, error) {
	for _, a := range assets {
		if a.name == c.Segment("name") && a.hash == c.Segment("hash") {
			c.W.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
			web.Respond(c.W, c.R, http.StatusOK, a.kind, a.content)
			return web.Sent, nil
		}
	}
	return nil, web.NotFound
}
