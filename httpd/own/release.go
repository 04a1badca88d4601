//go:build !nextlevel && !skiplevel

package own

// nextRoutes is empty: only programs that play the next version have such routes.
var nextRoutes []documented
