package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/erpbackbone/backbone/adapters/postgres"
)

// DoctorOptions are the flags of `backbone doctor`.
type DoctorOptions struct {
	DSN  string
	JSON bool
	Out  io.Writer
}

// Doctor looks at what Backbone's promises depend on outside of it, and reports
// whether all is well.
func Doctor(ctx context.Context, o DoctorOptions) (sound bool, err error) {
	settings, err := postgres.CheckSettings(ctx, o.DSN)
	if err != nil {
		return false, err
	}
	sound = true
	for _, s := range settings {
		sound = sound && s.Sound
	}
	if o.JSON {
		encoder := json.NewEncoder(o.Out)
		encoder.SetIndent("", "  ")
		return sound, encoder.Encode(map[string]any{"sound": sound, "settings": settings})
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tVALUE\tWANTED\t\tWHY")
	for _, s := range settings {
		verdict := "ok"
		if !s.Sound {
			verdict = "WRONG"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", s.Name, s.Value, s.Wanted, verdict, s.Why)
	}
	if err := table.Flush(); err != nil {
		return false, err
	}
	if !sound {
		_, err = fmt.Fprintln(o.Out, "\nCorrect what is WRONG in postgresql.conf or with ALTER SYSTEM, reload the server, and run this again.")
	}
	return sound, err
}
