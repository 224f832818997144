"""lipcheck: an independent checker of lipopt's certificates, in exact arithmetic.

Its modules follow spec/certificate.md, and can be read in this order:

    certificate, claim, parts, lines        section 2, the file
    cells, forms                            sections 2 and 3, trees of cells
    intervals, problem                      section 3, from the network to the derivative problem
    rules, polynomials, signs, factors      section 4, the rules
    network, functions                      section 5, the network file and its activations
    formulas, elementary                    and what these are at a point
    verdicts, theorem, __main__             section 6, the verdict; and the claim of section 1
    exact, products                         integers times powers of two, and their matrices
"""
