package wire

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

// ProjectionRows says which rows `backbone projections rebuild` folds anew.
type ProjectionRows struct {
	Entity      string // type/id of its stream
	Subject     string // type:id of a person
	LegalEntity string
	Version     int // 0: all
	DryRun      bool
}

// Chosen tells whether rows are meant and not the projection as a whole.
func (r ProjectionRows) Chosen() bool { return r.Entity != "" || r.Subject != "" }

// RebuildProjectionRows folds the rows of an entity or a person anew and prints how many
// were not as the log makes them.
func RebuildProjectionRows(ctx context.Context, o ClientOptions, name string, r ProjectionRows) error {
	command := httpclient.ProjectionRowsCommand{LegalEntity: r.LegalEntity, Subject: r.Subject, Version: r.Version, DryRun: r.DryRun}
	if r.Entity != "" {
		streamType, id, found := strings.Cut(r.Entity, "/")
		if !found || streamType == "" || id == "" {
			return fault.New(fault.Invalid, "projection.target_invalid", "an entity is written as the type and id of its stream, such as ap.vendor/V-1042; correct --entity")
		}
		command.Entity = &httpclient.ProjectionEntity{Type: streamType, ID: id}
	}
	client, err := o.connect()
	if err != nil {
		return err
	}
	rebuilt, err := client.RebuildProjectionRows(ctx, name, command)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(rebuilt)
	}
	return o.rowsRebuilt(rebuilt)
}

func (o ClientOptions) rowsRebuilt(r httpclient.ProjectionRowsRebuilt) error {
	if len(r.Rebuilt) == 0 {
		fmt.Fprintf(o.Out, "%s: no event of the projection is about this; nothing was changed\n", r.Name)
	} else {
		fmt.Fprintf(o.Out, "%s: %s\n", r.Name, foundRows(r.Rows, r.DryRun))
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	if len(r.Rebuilt) > 0 {
		fmt.Fprintln(table, "LEGAL ENTITY\tVERSION\tSEQUENCE\tENTITIES\tEVENTS\tTABLE\tROWS\tREMOVED\tADDED\tCHANGED")
	}
	passedOver := false
	for _, one := range r.Rebuilt {
		passedOver = passedOver || one.PassedOver != "0"
		for _, t := range one.Tables {
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", one.LegalEntity, one.Version, one.Sequence, one.Entities, one.Events, t.Table, t.RightRows, t.OnlyLeft, t.OnlyRight, t.Changed)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if passedOver {
		fmt.Fprintln(o.Out, "Some events were left out again, which a version had gone on without; look at `backbone deadletters`.")
	}
	for _, version := range r.LeftOut {
		fmt.Fprintf(o.Out, "Version %d was left as it is: another release built it.\n", version)
	}
	return nil
}

// foundRows says what became of rows that were not as the log makes them.
func foundRows(rows string, dryRun bool) string {
	switch {
	case rows == "0":
		return "all rows are as the log makes them"
	case dryRun && rows == "1":
		return "1 row is not as the log makes it; nothing was changed"
	case dryRun:
		return rows + " rows are not as the log makes them; nothing was changed"
	case rows == "1":
		return "1 row was not as the log makes it and is now"
	default:
		return rows + " rows were not as the log makes them and are now"
	}
}
