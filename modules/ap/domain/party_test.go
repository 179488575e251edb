package domain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

func TestCompareBuyer(t *testing.T) {
	t.Parallel()
	own := contract.BuyerIdentity{
		VATIDs: []string{"DE 999000197", "ATU13585627"}, RegistrationIDs: []string{"HRB 99199"}, EndpointIDs: []string{"0204:991-1-7", "4012345000009"}, Names: []string{"Demo Manufacturing GmbH"},
	}
	for name, c := range map[string]struct {
		buyer contract.Buyer
		own   contract.BuyerIdentity
		want  string
	}{
		"VAT id":                             {contract.Buyer{VATID: "de-999.000.197", Names: []string{"Other"}}, own, "vat_id"},
		"second VAT id":                      {contract.Buyer{VATID: "ATU13585627"}, own, "vat_id"},
		"other VAT id, same name":            {contract.Buyer{VATID: "DE136695976", Names: []string{"Demo Manufacturing GmbH"}}, own, "differs"},
		"registration id":                    {contract.Buyer{RegistrationID: "hrb99199"}, own, "registration_id"},
		"other registration id":              {contract.Buyer{RegistrationID: "HRB 1"}, own, "differs"},
		"address with scheme":                {contract.Buyer{EndpointID: "0204:991-1-7"}, own, "endpoint_id"},
		"address of another scheme":          {contract.Buyer{EndpointID: "0088:991-1-7"}, own, "differs"},
		"address whose scheme is not set":    {contract.Buyer{EndpointID: "0088:4012345000009"}, own, "endpoint_id"},
		"name":                               {contract.Buyer{Names: []string{"DEMO MANUFACTURING GMBH"}}, own, "name"},
		"trade name":                         {contract.Buyer{Names: []string{"Demo Trading", "Demo Manufacturing"}}, own, "name"},
		"name of the books":                  {contract.Buyer{Names: []string{"Books Ltd"}}, own, "name"},
		"sister with another legal form":     {contract.Buyer{Names: []string{"Demo Manufacturing AG"}}, own, "differs"},
		"other name":                         {contract.Buyer{Names: []string{"Klant"}}, own, "differs"},
		"identifier that nothing is set for": {contract.Buyer{VATID: "DE136695976", Names: []string{"Books"}}, contract.BuyerIdentity{}, "name"},
		"blank identifier":                   {contract.Buyer{VATID: " - ", Names: []string{"Books"}}, own, "name"},
		"no name to compare":                 {contract.Buyer{VATID: "DE136695976", Names: []string{" "}}, contract.BuyerIdentity{}, "not_checked"},
	} {
		require.Equal(t, c.want, domain.CompareBuyer(c.buyer, c.own, "Books Ltd."), name)
	}
	require.Equal(t, "not_checked", domain.CompareBuyer(contract.Buyer{Names: []string{"A"}}, contract.BuyerIdentity{}, ""))
}
