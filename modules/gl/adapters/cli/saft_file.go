package cli

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/money"
)

// write writes the file from what was read.
func (x *saft) write(out io.Writer) error {
	w := &xmlWriter{out: out}
	w.raw(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<AuditFile xmlns="` + saftNamespace + `">` + "\n")
	w.depth++
	w.element("Header", func() { x.writeHeader(w) })
	w.element("MasterFiles", func() {
		x.writeAccounts(w)
		x.writeSuppliers(w)
		x.writeTaxTable(w)
		x.writeAnalysisTable(w)
	})
	w.element("GeneralLedgerEntries", func() { x.writeEntries(w) })
	w.depth--
	w.raw("</AuditFile>\n")
	return w.err
}

func (x *saft) writeHeader(w *xmlWriter) {
	c := &x.company
	w.text("AuditFileVersion", saftVersion)
	w.text("AuditFileCountry", "NO")
	w.text("AuditFileDateCreated", x.created)
	w.text("SoftwareCompanyName", "Backbone")
	w.text("SoftwareID", "Backbone")
	w.text("SoftwareVersion", cut(cmp.Or(x.options.Version, "unknown"), 18))
	w.element("Company", func() {
		w.id("RegistrationNumber", c.RegistrationNumber, 35)
		w.text("Name", cut(c.Name, 256))
		if c.Address != (Address{}) {
			w.element("Address", func() {
				w.optional("StreetName", cut(c.Address.Street, 256))
				w.optional("Number", cut(c.Address.Number, 70))
				w.optional("City", cut(c.Address.City, 256))
				w.optional("PostalCode", cut(c.Address.PostalCode, 70))
				w.optional("Country", c.Address.Country)
				w.text("AddressType", "StreetAddress")
			})
		}
		w.element("Contact", func() {
			w.element("ContactPerson", func() {
				w.text("FirstName", cut(c.Contact.FirstName, 35))
				w.text("LastName", cut(c.Contact.LastName, 70))
			})
			w.id("Telephone", c.Contact.Telephone, 18)
			if c.Contact.Email != "" {
				w.id("Email", c.Contact.Email, 70)
			}
		})
		if c.TaxRegistrationNumber != "" {
			w.element("TaxRegistration", func() {
				w.id("TaxRegistrationNumber", c.TaxRegistrationNumber, 35)
				w.text("TaxAuthority", "Skatteetaten")
			})
		}
	})
	w.text("DefaultCurrencyCode", x.at.Currency)
	w.element("SelectionCriteria", func() {
		w.id("CompanyEntity", x.options.LegalEntity, 70)
		w.text("SelectionStartDate", x.options.From)
		w.text("SelectionEndDate", x.at.AsOf)
		w.text("OtherCriteria", "legal entity "+x.options.LegalEntity+", as of "+x.at.AsOf+", known at sequence "+x.at.Sequence)
	})
	w.text("TaxAccountingBasis", "A")
}

// writeBalance writes a debit balance as a debit or a credit one.
func (x *saft) writeBalance(w *xmlWriter, name string, n money.Number) {
	side := "Debit"
	if n.Sign() < 0 {
		side, n = "Credit", n.Neg()
	}
	text, err := amountText(n)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.text(name+side+"Balance", text)
}

func (x *saft) writeAccounts(w *xmlWriter) {
	if len(x.balances) == 0 {
		return
	}
	w.element("GeneralLedgerAccounts", func() {
		for i := range x.balances {
			b := &x.balances[i]
			g, grouped := x.company.Grouping[b.Account]
			if !grouped {
				g = Grouping{Category: "accountType", Code: cmp.Or(b.Type, "unknown")}
			}
			w.element("Account", func() {
				w.id("AccountID", b.Account, 70)
				w.text("AccountDescription", cut(cmp.Or(b.Name, b.Account), 256))
				w.id("GroupingCategory", g.Category, 256)
				w.id("GroupingCode", g.Code, 35)
				w.text("AccountType", "GL")
				x.writeBalance(w, "Opening", b.opening)
				x.writeBalance(w, "Closing", b.closing)
			})
		}
	})
}

func (x *saft) writeSuppliers(w *xmlWriter) {
	if len(x.suppliers) == 0 {
		return
	}
	w.element("Suppliers", func() {
		for i := range x.suppliers {
			s := &x.suppliers[i]
			w.element("Supplier", func() {
				w.text("Name", cut(cmp.Or(s.displayName(), s.ID), 256))
				if len(s.Country) == 2 {
					w.element("Address", func() { w.text("Country", s.Country) })
				}
				w.id("SupplierID", s.ID, 35)
				w.element("BalanceAccount", func() {
					w.optional("AccountID", s.account)
					x.writeBalance(w, "Opening", s.opening.Neg())
					x.writeBalance(w, "Closing", s.closing.Neg())
				})
				w.element("PartyInfo", func() {
					w.text("Type", map[bool]string{true: "Private", false: "Company"}[s.NaturalPerson])
				})
			})
		}
	})
}

func (x *saft) writeTaxTable(w *xmlWriter) {
	if len(x.groups) == 0 {
		return
	}
	w.element("TaxTable", func() {
		w.element("TaxTableEntry", func() {
			w.text("TaxType", "MVA")
			w.text("Description", "Merverdiavgift")
			for _, name := range slices.Sorted(maps.Keys(x.groups)) {
				g := x.groups[name]
				w.element("TaxCodeDetails", func() {
					w.id("TaxCode", name, 70)
					w.optional("Description", cut(g.Description, 256))
					w.text("TaxPercentage", g.Rate.String())
					w.text("Country", cmp.Or(x.company.Address.Country, "NO"))
					w.text("StandardTaxCode", cmp.Or(x.company.TaxCodes[name], "NA"))
					base := "100"
					if g.RecoverablePercent != nil {
						base = g.RecoverablePercent.String()
					}
					w.text("BaseRate", base)
				})
			}
		})
	})
}

func (x *saft) writeAnalysisTable(w *xmlWriter) {
	entries := x.analysis.sorted()
	if len(entries) == 0 {
		return
	}
	w.element("AnalysisTypeTable", func() {
		for _, e := range entries {
			w.element("AnalysisTypeTableEntry", func() {
				w.text("AnalysisType", e.kind)
				w.text("AnalysisTypeDescription", cut(e.dimension, 256))
				w.text("AnalysisID", e.value)
				w.text("AnalysisIDDescription", cut(e.name, 256))
			})
		}
	})
}

func (x *saft) writeEntries(w *xmlWriter) {
	w.text("NumberOfEntries", strconv.Itoa(x.result.Journals))
	for _, total := range []struct {
		name string
		sum  money.Number
	}{{"TotalDebit", x.debit}, {"TotalCredit", x.credit}} {
		text, err := amountText(total.sum)
		if err != nil && w.err == nil {
			w.err = err
		}
		w.text(total.name, text)
	}
	for _, prefix := range slices.Sorted(maps.Keys(x.journals)) {
		s := x.journals[prefix]
		w.element("Journal", func() {
			w.text("JournalID", prefix)
			w.text("Description", strings.ToUpper(s.kind[:1])+s.kind[1:])
			w.text("Type", prefix)
			if w.err == nil {
				w.err = s.copyTo(w.out)
			}
		})
	}
}
