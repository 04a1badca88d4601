//go:build !nextlevel && !skiplevel

package own

// nextRoutes are none: only programs that stand for the next version have some.
var nextRoutes []documented
