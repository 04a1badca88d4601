// Package consul turns the JSON of Consul's HTTP API into domain values and back: requests are read
// leniently, as its clients need it (unknown fields are ignored, names compared without case), answers
// are written with the fields and the spelling that its official Go client decodes. It knows no HTTP.
package consul
