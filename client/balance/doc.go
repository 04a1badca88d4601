// Package balance chooses among the instances of a service, and calls them: as a Picker, or as the
// http.RoundTripper of an ordinary http.Client.
package balance
