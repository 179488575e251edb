package wire

import (
	"cmp"
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

// SnapshotProjection takes a snapshot of what readers are shown, in one legal entity or,
// for "", in all. With wait it ends once the snapshot is complete.
func SnapshotProjection(ctx context.Context, o ClientOptions, name, legalEntity string, wait bool) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	b, err := client.SnapshotProjection(ctx, name, legalEntity)
	if err != nil {
		return err
	}
	version := 0
	for _, s := range b.Snapshots {
		if s.LegalEntity == legalEntity {
			version = max(version, s.Version)
		}
	}
	for wait {
		taken, there := snapshotOf(b, version)
		if !there {
			return fault.New(fault.FailedPrecondition, "projection.snapshot_not_found", "snapshot %d of projection %s is not there any more; take another one", version, name)
		}
		if taken.Complete {
			break
		}
		if err := pause(ctx); err != nil {
			return err
		}
		if b, err = client.ProjectionRebuild(ctx, name); err != nil {
			return err
		}
	}
	return o.rebuild(b)
}

func snapshotOf(b httpclient.ProjectionRebuild, version int) (httpclient.ProjectionSnapshot, bool) {
	for _, s := range b.Snapshots {
		if s.Version == version {
			return s, true
		}
	}
	return httpclient.ProjectionSnapshot{}, false
}

// DropProjectionSnapshot removes a snapshot. legalEntity is the one that it is about, ""
// for one of all.
func DropProjectionSnapshot(ctx context.Context, o ClientOptions, name, legalEntity string, version int) error {
	return o.onRebuild(func(c *httpclient.Client) (httpclient.ProjectionRebuild, error) {
		return c.DropProjectionSnapshot(ctx, name, legalEntity, version)
	})
}

// snapshots prints the table of snapshots, if there are any.
func (o ClientOptions) snapshots(all []httpclient.ProjectionSnapshot) error {
	if len(all) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nSNAPSHOT\tLEGAL ENTITY\tSEQUENCE\tROWS\tTAKEN\tSTATE")
	for _, s := range all {
		if len(s.LegalEntities) == 0 {
			fmt.Fprintf(table, "%d\t%s\t-\t0\t-\t%s\n", s.Version, cmp.Or(s.LegalEntity, "-"), snapshotState(s, httpclient.ProjectionSnapshotPart{}))
		}
		for _, part := range s.LegalEntities {
			taken := "-"
			if part.TakenAt != nil {
				taken = part.TakenAt.UTC().Format("2006-01-02 15:04Z")
			}
			fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\n", s.Version, part.LegalEntity, part.Sequence, part.RowCount, taken, snapshotState(s, part))
		}
	}
	return table.Flush()
}

func snapshotState(s httpclient.ProjectionSnapshot, part httpclient.ProjectionSnapshotPart) string {
	switch {
	case !s.Complete:
		return "being copied"
	case s.Outdated:
		return "of another handler"
	case !part.Usable:
		return "redacted since"
	default:
		return "usable"
	}
}
