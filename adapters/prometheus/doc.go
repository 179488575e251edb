// Package prometheus turns the reports of other packages into metrics in the Prometheus
// text format. It implements the observers of the services; cmd/wire connects them. Labels
// have few values: no ids of events, no names of persons, no payloads. Durations are in
// seconds. It decides nothing.
package prometheus
