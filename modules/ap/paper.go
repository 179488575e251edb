package ap

import (
	"context"
	"fmt"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/paper"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// subjectVendor is the type of the subjects under whose keys the papers of vendors are sealed.
const subjectVendor = "vendor"

// checkPapers requires that the papers which a document names, its own and those of its attachments,
// are kept, and that the erasure of the document's vendor reaches them.
func checkPapers(ctx context.Context, s module.State, k contract.Kind, d *contract.Document) error {
	if d.SourceDocument != nil {
		if err := checkPaper(ctx, s, k, d.VendorID, d.SourceDocument.Paper, "/source_document/paper"); err != nil {
			return err
		}
	}
	for i, a := range d.Attachments {
		if err := checkPaper(ctx, s, k, d.VendorID, string(a.Paper), fmt.Sprintf("/attachments/%d/paper", i)); err != nil {
			return err
		}
	}
	return nil
}

func checkPaper(ctx context.Context, s module.State, k contract.Kind, vendorID, id, field string) error {
	if id == "" {
		return nil
	}
	kept, err := module.Load[*paper.Paper](ctx, s, paper.Stream(id))
	if err != nil {
		return err
	}
	if subject, _ := shredding.NewSubject(subjectVendor, vendorID); !kept.IsKept || kept.Subject != subject {
		return fault.New(fault.NotFound, k.Code("paper_not_found"),
			"no paper of this vendor with this id is kept in the legal entity; keep it first (POST /api/papers with the vendor as subject) or leave it out").WithField(field)
	}
	return nil
}
