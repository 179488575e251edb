package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	yaml "go.yaml.in/yaml/v3"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

// ProjectionRowsQuery says which rows `backbone projections rows` lists.
type ProjectionRowsQuery = httpclient.ProjectionRowsQuery

const largestDefinition = 256 << 10

// readDefinition reads a definition in YAML, of which JSON is a part. Fault
// projection.file_invalid.
func readDefinition(path string) (json.RawMessage, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, largestDefinition))
	if err != nil {
		return nil, err
	}
	var document map[string]any
	if err := yaml.Unmarshal(text, &document); err != nil || document == nil {
		return nil, fault.New(fault.Invalid, "projection.file_invalid", "%s is no definition in YAML or JSON; see `backbone projections create --help`", path)
	}
	return json.Marshal(document)
}

// CreateProjection creates the projection of a file, or only tries it.
func CreateProjection(ctx context.Context, o ClientOptions, path string, dryRun, untried bool) error {
	definition, err := readDefinition(path)
	if err != nil {
		return err
	}
	client, err := o.connect()
	if err != nil {
		return err
	}
	made, err := client.CreateProjection(ctx, definition, dryRun, untried)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(made)
	}
	done := "is created and runs"
	if dryRun {
		done = "would do; it was not created"
	}
	fmt.Fprintf(o.Out, "%s %s. It was tried on %s.\n", made.Name, done, counted(made.Events, "event"))
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LEGAL ENTITY\tEVENTS\tROWS\tKEY\tSTATE")
	for _, t := range made.Trial {
		if len(t.Rows) == 0 {
			fmt.Fprintf(table, "%s\t%d\t%d\t-\t-\n", t.LegalEntity, t.Events, t.RowCount)
		}
		for _, r := range t.Rows {
			fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\n", t.LegalEntity, t.Events, t.RowCount, r.Key, r.State)
		}
	}
	return table.Flush()
}

// DeleteProjection deletes a projection of the tenant's own.
func DeleteProjection(ctx context.Context, o ClientOptions, name string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	if err := client.DeleteProjection(ctx, name); err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"name": name, "deleted": true})
	}
	fmt.Fprintf(o.Out, "%s is deleted.\n", name)
	return nil
}

// ListProjectionRows prints rows of a projection of the tenant's own.
func ListProjectionRows(ctx context.Context, o ClientOptions, name string, q ProjectionRowsQuery) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	page, err := client.ProjectionRows(ctx, name, q)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(page)
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tSEQUENCE\tSTATE")
	for _, r := range page.Rows {
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.Key, r.Sequence, r.State)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if page.HasMore {
		fmt.Fprintln(o.Out, "There are more; go on with --cursor", page.NextCursor)
	}
	return nil
}
