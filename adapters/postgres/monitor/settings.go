package monitor

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
)

// Setting is a server setting that Backbone's guarantees depend on.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Wanted string `json:"wanted"`
	Sound  bool   `json:"sound"`
	Why    string `json:"why"`
}

// wantedSetting accepts the named values, or all but those after "not".
type wantedSetting struct {
	name     string
	accepted []string
	refused  []string
	optional bool // unknown to a server that has not loaded its extension
	why      string
}

const (
	durable = "an answered append must survive a crash"
	private = "the server's log must hold no value of a person"
)

var wantedSettings = []wantedSetting{
	{name: "server_encoding", accepted: []string{"UTF8"}, why: "hashes are over UTF-8"},
	{name: "fsync", accepted: []string{"on"}, why: durable},
	{name: "full_page_writes", accepted: []string{"on"}, why: durable},
	{name: "synchronous_commit", refused: []string{"off"}, why: durable},
	{name: "log_error_verbosity", accepted: []string{"terse"}, why: private},
	{name: "log_min_error_statement", accepted: []string{"panic"}, why: private},
	{name: "log_parameter_max_length", accepted: []string{"0"}, why: private},
	{name: "log_parameter_max_length_on_error", accepted: []string{"0"}, why: private},
	{name: "log_statement", accepted: []string{"none"}, why: private},
	{name: "auto_explain.log_parameter_max_length", accepted: []string{"0"}, optional: true, why: private},
}

// CheckSettings reads the settings that a session of the DSN has, in
// a fixed order. Faults: store.dsn_invalid, store.unavailable.
func CheckSettings(ctx context.Context, dsn string) ([]Setting, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, pg.InvalidDSN("the database address")
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, pg.UnavailableFault(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var found []Setting
	for _, w := range wantedSettings {
		var value *string
		// pg_settings hides some settings from ordinary roles; current_setting does not.
		if err := conn.QueryRow(ctx, "SELECT current_setting($1, true)", w.name).Scan(&value); err != nil {
			return nil, pg.Translate(ctx, err)
		}
		if value == nil && w.optional {
			continue
		}
		found = append(found, w.judge(value))
	}
	return found, nil
}

func (w wantedSetting) judge(value *string) Setting {
	s := Setting{Name: w.name, Wanted: strings.Join(w.accepted, " or "), Why: w.why}
	if len(w.refused) > 0 {
		s.Wanted = "not " + strings.Join(w.refused, ", ")
	}
	if value == nil {
		s.Value = "unknown"
		return s
	}
	s.Value = *value
	s.Sound = !slices.Contains(w.refused, s.Value) && (len(w.accepted) == 0 || slices.Contains(w.accepted, s.Value))
	return s
}
