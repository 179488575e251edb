package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Company is what an audit file says of a legal entity that the log does not hold. A person
// declares it in a file; nothing in it is derived.
type Company struct {
	RegistrationNumber    string              `json:"registration_number"`
	TaxRegistrationNumber string              `json:"tax_registration_number"` // "" for a company that is not subject to VAT
	Name                  string              `json:"name"`                    // "" is the name of the legal entity
	Address               Address             `json:"address"`
	Contact               Contact             `json:"contact"`
	Grouping              map[string]Grouping `json:"grouping"`  // account → its place in the tax office's code list
	TaxCodes              map[string]string   `json:"tax_codes"` // tax group → code of the tax office
}

// Address is an address of a company.
type Address struct {
	Street     string `json:"street"`
	Number     string `json:"number"`
	PostalCode string `json:"postal_code"`
	City       string `json:"city"`
	Country    string `json:"country"` // ISO 3166-1 alpha-2
}

// Contact is the person whom an auditor asks.
type Contact struct {
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name"`
	Telephone string `json:"telephone"`
	Email     string `json:"email"`
}

// Grouping is a code of a code list for accounts.
type Grouping struct {
	Category string `json:"category"`
	Code     string `json:"code"`
}

// maxCompanyFile bounds the declaration; a chart of ten thousand accounts fits.
const maxCompanyFile = 4 << 20

// ReadCompany reads a declaration. Fault: export.company_invalid.
func ReadCompany(path string) (Company, error) {
	var c Company
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxCompanyFile {
		return c, companyInvalid("it is not a file of at most %d bytes that can be read", maxCompanyFile).WithCause(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, companyInvalid("it cannot be read").WithCause(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil || decoder.More() {
		return c, companyInvalid("it is not one JSON object with the members that docs/export.md lists").WithCause(err)
	}
	if c.Address.Country != "" && len(c.Address.Country) != 2 {
		return c, companyInvalid("address.country has two letters, such as NO")
	}
	for account, g := range c.Grouping {
		if g.Category == "" || g.Code == "" {
			return c, companyInvalid("grouping of account %s lacks category or code", account)
		}
	}
	return c, nil
}

// requireHeader checks what the header of SAF-T cannot do without. Fault:
// export.company_incomplete.
func (c *Company) requireHeader() error {
	var missing []string
	for _, m := range []struct{ name, value string }{
		{"registration_number", c.RegistrationNumber}, {"name", c.Name},
		{"contact.first_name", c.Contact.FirstName}, {"contact.last_name", c.Contact.LastName}, {"contact.telephone", c.Contact.Telephone},
	} {
		if strings.TrimSpace(m.value) == "" {
			missing = append(missing, m.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "export.company_incomplete", "the file of --company lacks %s, which SAF-T demands; add it", strings.Join(missing, ", ")).
		With("missing", missing)
}

func companyInvalid(detail string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "export.company_invalid", "the file of --company is not usable: "+detail+"; correct it", args...)
}
