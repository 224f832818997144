"""lipcheck: an independent checker of lipopt's certificates, in exact arithmetic. See spec/certificate.md."""
